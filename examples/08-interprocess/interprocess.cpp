// interprocess home|node DIR: a map of strings that two nodes change, each at its own address.
#include <unistd.h>

#include <cmi/interprocess.hpp>
#include <iostream>
using namespace cmi::interprocess;
using names = map<int, string>;
int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: interprocess home|node DIR\n", 2;
  const bool home = std::string(argv[1]) == "home";
  alarm(60);  // ends the one that waits when the other has been killed
  const auto context = cmi::context::open();
  auto shared = home ? memory::make(context, argv[2], "names", 1 << 20)
                     : memory::find(context, argv[2], "names", std::chrono::seconds(30));
  shared.with<names>("names", [&](names& all) { all[home] = argv[1]; });
  while (shared.with<names>("names", &names::size) < 2) usleep(100);
  shared.with<names>("names", [&](names& all) {
    for (const auto& [key, name] : all) std::cout << key << ": " << name << '\n';
    if (!home) all[2] = "done";  // the home's end is that of the segment
  });
  while (home && shared.with<names>("names", &names::size) < 3) usleep(100);
}
