// interprocess: a map of strings of Boost.Interprocess in a segment, changed by two nodes that
// attach it at different addresses: its pointers are offsets. A lock of the library guards it.
//
//   interprocess home DIR    makes the map, and waits for what the other node puts in
//   interprocess node DIR    the other one
#include <boost/container/map.hpp>
#include <boost/container/string.hpp>
#include <boost/interprocess/allocators/allocator.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <chrono>
#include <cmi/cmi.hpp>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace {

namespace bip = boost::interprocess;
using Memory = bip::managed_external_buffer;
template <class T>
using Allocator = bip::allocator<T, Memory::segment_manager>;
using Text = boost::container::basic_string<char, std::char_traits<char>, Allocator<char>>;
using Names =
    boost::container::map<int, Text, std::less<int>, Allocator<std::pair<const int, Text>>>;

constexpr size_t kPage = 4096, kSize = 256 * kPage;  // the lock's page, and Boost's memory
constexpr auto kPatience = std::chrono::seconds(30);

// Puts a name into the map; how many there are then.
size_t put(const cmi::context& context, const cmi::view<std::byte>& view, int key,
           const char* name) {
  cmi::mutex mutex(context, *reinterpret_cast<cmi_ofi_mutex*>(view.data()));
  const std::lock_guard held(mutex);
  Memory memory(bip::open_only, view.data() + kPage, kSize - kPage);
  Names& names = *memory.find<Names>("names").first;
  names.emplace(key, Text(name, memory.get_segment_manager()));
  return names.size();
}

int home(const std::string& folder) {
  const auto context = cmi::context::open();
  const auto segment = context.make(kSize, CMI_SEG_CLIENT_CONSIST);
  const auto view = segment.attach();
  Memory memory(bip::create_only, view.data() + kPage, kSize - kPage);
  memory.construct<Names>("names")(memory.get_segment_manager());
  put(context, view, 1, "the home's name, too long for a small string");
  const auto handle = segment.export_handle();
  const auto token = segment.grant();
  const auto offer = context.offer(folder, "names", handle, token);
  for (const auto end = std::chrono::steady_clock::now() + kPatience;;) {
    if (put(context, view, 1, "") == 2) break;
    if (std::chrono::steady_clock::now() > end) return std::fputs("nobody came\n", stderr), 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const auto& [key, name] : *memory.find<Names>("names").first) {
    std::printf("%d: %s\n", key, name.c_str());
  }
  return 0;
}

int node(const std::string& folder) {
  const auto context = cmi::context::open();
  const auto segment = context.find(folder, "names", kPatience);
  const auto elsewhere = segment.attach();  // so that the second view has another address
  const auto view = segment.attach();
  return put(context, view, 2, "the other node's name, as long as the first one") == 2 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  try {
    if (what == "home") return home(argv[2]);
    if (what == "node") return node(argv[2]);
    std::fprintf(stderr, "usage: interprocess home DIR | interprocess node DIR\n");
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "interprocess: %s\n", e.what());
    return 1;
  }
}
