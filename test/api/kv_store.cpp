// The store of examples/05-kv in one process: what a writer leaves that dies between any two of its
// stores, whichever of them have reached the home; swaps are made there, in their order, behind the
// stores before them. Exit status 0: a reader finds the old value or the new one in each case, and
// the next writer goes on.
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

const kv::Shape kShape = {1, 2, 136, 2};

// Whether a word is a slot's, or a lock's: they are swapped.
bool is_swapped(size_t word) {
  const size_t page = word * 8 / 4096, offset = word * 8 % 4096;
  return page <= kShape.locks() || offset % kShape.slot() == 0;
}

// `change` is what dies. `before` and `after`: the key's values, "": it has none.
template <class F>
void dies_anywhere(kv::Store& store, Memory memory, const std::string& key,
                   const std::string& before, const std::string& after, F&& change) {
  const Words old = memory.now();
  change();
  const Words done = memory.now();
  std::vector<size_t> changed, swapped;
  for (size_t i = 0; i < old.size(); ++i) {
    if (old[i] != done[i]) (is_swapped(i) ? swapped : changed).push_back(i);
  }
  EXPECT(changed.size() >= 2 && !swapped.empty());
  std::mt19937_64 random(7);
  std::string value;
  const auto try_one = [&](auto&& arrived, bool swaps = false) {
    Words some = old;
    for (size_t k = 0; k < changed.size(); ++k) {
      if (swaps || arrived(k)) some[changed[k]] = done[changed[k]];
    }
    if (swaps) {
      for (const size_t word : swapped) some[word] = done[word];
    }
    memory.become(some);
    const std::string found = store.get(key, value) ? value : "";
    EXPECT(found == (swaps ? after : before));
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
  try_one([](size_t) { return true; }, true);
  memory.become(done);
}

void run() {
  const auto context = cmi::context::open();
  const auto segment = context.make(kv::Store::bytes(kShape), CMI_SEG_CLIENT_CONSIST);
  const auto view = segment.attach();
  kv::Store::make(view, kShape);
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

  // Each object that changes it has a number; what one has stored the other goes on with.
  {
    kv::Store second(context, view), third(context, view);
    second.put("key", "by the second");
    EXPECT(store.get("key", value) && value == "by the second");
    store.put("key", "by the first");
    store.put("key", "by the first again");
    second.put("key", "by the second again");
    EXPECT(third.get("key", value) && value == "by the second again");
    try {
      third.put("key", "by one too many");
      fail(__LINE__, "refused");
    } catch (const std::runtime_error&) {
    }
    EXPECT(store.get("key", value) && value == "by the second again");
  }
  kv::Store fourth(context, view);  // with the second one's number
  fourth.put("key", "by the fourth");
  EXPECT(store.get("key", value) && value == "by the fourth");
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
