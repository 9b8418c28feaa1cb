// The store of examples/05-kv in one process: what a writer leaves that dies between any two of its
// stores, whichever of them have reached the home. Exit status 0: a reader finds the old value or
// the new one in each case, and the next writer goes on.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <vector>

#include "05-kv/store.hpp"

namespace {

std::string g_folder;

[[noreturn]] void fail(int line, const char* what) {
  std::fprintf(stderr, "line %d: not %s\n", line, what);
  std::filesystem::remove_all(g_folder);
  std::_Exit(EXIT_FAILURE);
}
#define EXPECT(condition) ((condition) ? void() : fail(__LINE__, #condition))

using Words = std::vector<uint64_t>;

// The segment, as words.
class Memory {
 public:
  explicit Memory(const cmi::view<std::byte>& view)
      : at_(reinterpret_cast<uint64_t*>(view.data())), count_(view.size() / 8) {}
  Words now() const { return {at_, at_ + count_}; }
  void become(const Words& words) { std::copy(words.begin(), words.end(), at_); }

 private:
  uint64_t* at_;
  size_t count_;
};

// `change` is what dies. `before` and `after`: the key's values, "": it has none.
template <class F>
void dies_anywhere(kv::Store& store, Memory memory, const std::string& key,
                   const std::string& before, const std::string& after, F&& change) {
  const Words old = memory.now();
  change();
  const Words done = memory.now();
  std::vector<size_t> changed;
  for (size_t i = 0; i < old.size(); ++i) {
    if (old[i] != done[i]) changed.push_back(i);
  }
  EXPECT(changed.size() >= 5);
  std::mt19937_64 random(7);
  std::string value;
  const auto try_one = [&](auto&& arrived) {
    Words some = old;
    for (size_t k = 0; k < changed.size(); ++k) {
      if (arrived(k)) some[changed[k]] = done[changed[k]];
    }
    memory.become(some);
    const std::string found = store.get(key, value) ? value : "";
    EXPECT(found == before || found == after);
    store.put(key, "the next one");
    EXPECT(store.get(key, value) && value == "the next one");
    EXPECT(store.get("other", value) && value == "beside it");
  };
  for (size_t upto = 0; upto <= changed.size(); ++upto) {
    try_one([&](size_t k) { return k < upto; });
    try_one([&](size_t k) { return k >= upto; });
    try_one([&](size_t k) { return k != upto; });
  }
  for (int i = 0; i < 200; ++i) try_one([&](size_t) { return random() % 2 == 0; });
  memory.become(done);
}

void run() {
  const auto context = cmi::context::open();
  const kv::Shape shape = {1, 2, 136};
  const auto segment = context.make(kv::Store::bytes(shape), CMI_SEG_CLIENT_CONSIST);
  const auto view = segment.attach();
  kv::Store::make(view, shape);
  kv::Store store(context, view);
  const Memory memory(view);
  std::string value;
  store.put("other", "beside it");
  EXPECT(!store.get("key", value) && !store.erase("key"));
  const auto put = [&](const std::string& what) {
    return [&store, what] { store.put("key", what); };
  };
  dies_anywhere(store, memory, "key", "", "the first value", put("the first value"));
  dies_anywhere(store, memory, "key", "the first value", "the second", put("the second"));
  dies_anywhere(store, memory, "key", "the second", "a third, which is longer",
                put("a third, which is longer"));
  dies_anywhere(store, memory, "key", "a third, which is longer", "",
                [&] { EXPECT(store.erase("key")); });
  dies_anywhere(store, memory, "key", "", "once more", put("once more"));

  // Until there is no room; what is there stays, and what was erased makes room.
  size_t keys = 0;
  try {
    for (;; ++keys) store.put("filling " + std::to_string(keys), "x");
  } catch (const std::length_error&) {
  }
  EXPECT(keys > 10 && store.get("key", value) && value == "once more");
  EXPECT(store.erase("filling 3") && !store.get("filling 3", value));
  store.put("in its place", "y");
  EXPECT(store.get("in its place", value) && value == "y");
  size_t seen = 0;
  store.each([&](std::string_view, std::string_view) { ++seen; });
  EXPECT(seen == keys + 2);
}

}  // namespace

int main() {
  std::string folder = "/dev/shm/cmi-test-XXXXXX";
  EXPECT(::mkdtemp(folder.data()) != nullptr);
  g_folder = folder;
  ::setenv("CMI_RUNTIME_DIR", (folder + "/runtime").c_str(), 1);
  try {
    run();
  } catch (const std::exception& e) {
    fail(0, e.what());
  }
  std::filesystem::remove_all(folder);
  return EXIT_SUCCESS;
}
