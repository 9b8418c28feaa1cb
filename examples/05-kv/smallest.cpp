// smallest home DIR | put DIR KEY VALUE | get DIR KEY: a key-value store that survives kill -9 of
// any client. A writer fills in the value that nobody reads, then makes it current by a swap of the
// version, which publishes what was stored before: a dead writer leaves the old one or the new one.
#include <cmi/cmi.hpp>
#include <cstring>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
struct alignas(4096) table {
  cmi_ofi_mutex mutex;
  struct entry {
    uint64_t version;  // 0: free; value[version % 2] is current
    char key[24], value[2][48];
  } entries[1023];
};
int put(const cmi::context& context, table& t, const std::string& key, const std::string& value) {
  if (key.empty() || key.size() > 23 || value.size() > 47) return 2;
  cmi::mutex mutex(context, t.mutex);
  // What a dead owner had not made current nobody sees: there is nothing to repair.
  const auto taken = mutex.try_lock_for(std::chrono::minutes(1));
  if (taken == cmi::taken::owner_dead) mutex.repaired();
  if (taken == cmi::taken::no) return 1;
  const std::lock_guard held(mutex, std::adopt_lock);
  for (auto& e : t.entries) {
    if (e.version != 0 && key != e.key) continue;
    if (e.version == 0) std::strcpy(e.key, key.c_str());
    std::strcpy(e.value[(e.version + 1) % 2], value.c_str());
    cmi::atomic_ref(context, e.version).store(e.version + 1);
    return 0;
  }
  return 1;
}
int get(const cmi::context& context, table& t, const std::string& key) {
  for (auto& e : t.entries) {
    const cmi::atomic_ref version(context, e.version);
    for (uint64_t seen = version.load(); seen != 0 && key == e.key; seen = version.load()) {
      const std::string value(e.value[seen % 2], strnlen(e.value[seen % 2], 48));
      if (version.load() == seen) return std::cout << value << '\n', 0;
    }
  }
  return 1;
}
int main(int argc, char** argv) try {
  if (argc < 3)
    return std::cerr << "usage: smallest home DIR | put DIR KEY VALUE | get DIR KEY\n", 2;
  const auto context = cmi::context::open();
  if (argc == 3) {
    const auto segment = context.make(sizeof(table), CMI_SEG_CLIENT_CONSIST);
    const auto handle = segment.export_handle();
    const auto token = segment.grant();
    const auto offer = context.offer(argv[2], "smallest", handle, token);
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  const auto segment = context.find(argv[2], "smallest", std::chrono::seconds(10));
  const auto t = segment.attach<table>();
  return argc == 5 ? put(context, *t, argv[3], argv[4]) : get(context, *t, argv[3]);
} catch (const std::exception& e) {
  return std::cerr << "smallest: " << e.what() << '\n', 1;
}
