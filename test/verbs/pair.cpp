// What two machines do with one segment: the program of test/verbs/together. The home and its peer
// go through the same scenes side by side; they wait for each other by files in a folder that both
// see.
//
//   pair home FOLDER                  makes and exports the segment
//   pair peer FOLDER BLINK CUT MEND   another machine; the commands take it off the network for a
//                                     moment in which nothing is sent, for longer, and put it back
//   pair victim FOLDER                holds pages and unpublished stores until it is killed
//
// Prints what goes wrong and then ends with 1. Nothing waits longer than kPatience.
#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "core/base/clock.hpp"
#include "system/guard.hpp"

namespace cmi::test {
namespace {

constexpr size_t kPage = 4096, kPages = 64;
constexpr unsigned kPatience = 180;  // seconds, for the whole of a process

std::string g_folder;
cmi_ctxt* g_ctxt = nullptr;

void must(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "pair: not so: %s (error %d)\n", what,
               g_ctxt == nullptr ? 0 : static_cast<int>(cmi_get_error(g_ctxt)));
  std::exit(1);
}

void must_load(Access found, uint64_t value, const char* what) {
  if (found.cause() == Fault::kNone && found.value == value) return;
  std::fprintf(stderr, "pair: %s: cause %d, value %llu instead of %llu\n", what, found.cause(),
               static_cast<unsigned long long>(found.value),
               static_cast<unsigned long long>(value));
  must(false, what);
}

// A file appears under its name only when it is whole.
void say(const std::string& what, const std::string& bytes = {}) {
  const std::string path = g_folder + "/" + what;
  std::ofstream(path + ".part", std::ios::binary) << bytes;
  must(std::rename((path + ".part").c_str(), path.c_str()) == 0, "a file is left");
}

// The alarm bounds the wait.
std::string hear(const std::string& what) {
  std::ifstream file;
  while (!file.is_open()) {
    file.open(g_folder + "/" + what, std::ios::binary);
    if (!file.is_open()) ::usleep(20000);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t word(const void* view, size_t page) {
  return reinterpret_cast<uint64_t>(view) + page * kPage;
}

std::string bytes_of(const void* object, cmi_seg seg, int32_t attribute) {
  size_t size = 0, length = sizeof size;
  must(CMIFN(g_ctxt, 10, attr_get)(g_ctxt, seg, attribute, &size, &length) == 0, "attr_get");
  return {static_cast<const char*>(object), size};
}

// Repeats an access for as long as its home cannot be reached.
template <class F>
Access patiently(F access) {
  for (;;) {
    const Access a = access();
    if (a.cause() != CMI_ERROR_TRANSIENT) return a;
  }
}

void* import_segment(const std::string& token_name) {
  std::string handle = hear("handle"), token = hear(token_name);
  // An emulated machine that gets little of the processors needs longer than seg_imp gives a home
  // for its first answer. The alarm bounds the wait.
  cmi_seg seg = CMI_SEG_INVALID;
  while (seg == CMI_SEG_INVALID) {
    seg = CMIFN(g_ctxt, 10, seg_imp)(g_ctxt, reinterpret_cast<cmi_rseg*>(handle.data()));
    must(seg != CMI_SEG_INVALID || cmi_get_error(g_ctxt) == CMI_ERR_INVAL, "seg_imp");
  }
  cmi_ds set = {};
  set.op.token.tok = reinterpret_cast<cmi_token*>(token.data());
  must(CMIFN(g_ctxt, 10, seg_ctl)(g_ctxt, seg, CMI_SEG_TOKEN, &set) == 0, "CMI_SEG_TOKEN");
  void* view = CMIFN(g_ctxt, 10, seg_at)(g_ctxt, seg, nullptr, 0);
  must(view != nullptr, "seg_at");
  must(CMIFN(g_ctxt, 10, cmi_enb)(g_ctxt, 1) == 0, "cmi_enb");
  return view;
}

void home() {
  const cmi_seg seg = CMIFN(g_ctxt, 10, seg_get)(g_ctxt, kPages * kPage, CMI_SEG_CLIENT_CONSIST);
  must(seg != CMI_SEG_INVALID, "seg_get");
  void* view = CMIFN(g_ctxt, 10, seg_at)(g_ctxt, seg, nullptr, 0);
  must(view != nullptr, "seg_at");
  for (size_t page = 0; page < kPages; ++page) store64(word(view, page), 100 + page);
  must(cmi_wmb() == 0, "the barrier ends");
  cmi_rseg* handle = CMIFN(g_ctxt, 10, seg_exp)(g_ctxt, seg, 0);
  must(handle != nullptr, "seg_exp");
  const auto grant = [&](const char* name) {
    cmi_token* token = CMIFN(g_ctxt, 10, tok_new)(g_ctxt, seg, CMI_NADDR_ANY,
                                                  CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC);
    must(token != nullptr, "tok_new");
    say(name, bytes_of(token, seg, CMI_ATTR_TOKEN_SIZE));
    return token;
  };
  say("handle", bytes_of(handle, seg, CMI_ATTR_RSEG_SIZE));
  cmi_token* first = grant("first");

  hear("shared");
  must_load(load64(word(view, 1)), 1001, "the peer's store is here when its barrier has ended");
  store64(word(view, 0), 1000);
  must(cmi_wmb() == 0, "the barrier ends with an importer");
  say("seen");

  hear("mended");
  must_load(load64(word(view, 3)), 1003, "what was stored over a mended link is here");

  cmi_token* second = grant("second");
  hear("victim");
  hear("killed");
  store64(word(view, 6), 1006);
  must(cmi_wmb() == 0, "the barrier ends although an importer was killed");

  must(CMIFN(g_ctxt, 10, tok_del)(g_ctxt, first) == 0, "the token is revoked");
  say("revoked");
  hear("over");
  must_load(load64(word(view, 8)), 108, "nothing is stored with a revoked token");
  must(CMIFN(g_ctxt, 10, tok_del)(g_ctxt, second) == 0, "the token of the killed is revoked");
}

void peer(const char* blink, const char* cut, const char* mend) {
  void* view = import_segment("first");
  for (size_t page : {0, 6, 7}) must_load(load64(word(view, page)), 100 + page, "a load is right");
  must(store64(word(view, 1), 1001).cause() == Fault::kNone && cmi_wmb() == 0, "a store arrives");
  uint64_t found = 0;
  must(CMIFN(g_ctxt, 10, atm_cas)(g_ctxt, reinterpret_cast<uint64_t*>(word(view, 2)), 102, 1002,
                                  &found) == 0 &&
           found == 102,
       "a swap is done");
  say("shared");
  hear("seen");
  must_load(load64(word(view, 0)), 1000, "a load sees the home's store behind its barrier");

  must(std::system(blink) == 0, "the link is gone for a moment");
  must_load(patiently([&] { return load64(word(view, 4)); }), 104, "a load succeeds after it");

  must(std::system(cut) == 0, "the link is cut");
  must_load(load64(word(view, 7)), 107, "what is cached is read without a link");
  must(load64(word(view, 3)).cause() == CMI_ERROR_TRANSIENT, "a load over a cut link is transient");
  must(std::system(mend) == 0, "the link is mended");
  must_load(patiently([&] { return load64(word(view, 3)); }), 103, "the load succeeds then");
  must(patiently([&] { return store64(word(view, 3), 1003); }).cause() == Fault::kNone,
       "stores do");
  must(cmi_wmb() == 0, "and the barrier");
  say("mended");

  hear("revoked");
  must(load64(word(view, 7)).cause() == CMI_ERROR_TOKEN, "revoked: a load of a cached page");
  must(load64(word(view, 9)).cause() == CMI_ERROR_TOKEN, "revoked: a load of another page");
  must(store64(word(view, 8), 1).cause() == CMI_ERROR_TOKEN, "revoked: a store");
  say("over");
}

void victim() {
  void* view = import_segment("second");
  must_load(load64(word(view, 6)), 106, "a load is right");
  must(store64(word(view, 5), 1005).cause() == Fault::kNone, "a store is taken");
  say("victim");
  for (;;) ::pause();
}

}  // namespace
}  // namespace cmi::test

int main(int argc, char** argv) {
  using namespace cmi::test;
  const std::string role = argc > 2 ? argv[1] : "";
  if (!((role == "home" || role == "victim") && argc == 3) && !(role == "peer" && argc == 6)) {
    std::fprintf(stderr, "usage: pair home|victim FOLDER, or pair peer FOLDER BLINK CUT MEND\n");
    return 2;
  }
  g_folder = argv[2];
  ::alarm(kPatience);
  install_guard();
  g_ctxt = cmi_ini(CMI_VERNO, nullptr);
  must(g_ctxt != nullptr, "cmi_ini");
  if (role == "home") home();
  if (role == "peer") peer(argv[3], argv[4], argv[5]);
  if (role == "victim") victim();
  must(CMIFN(g_ctxt, 10, fini)(g_ctxt) == 0, "fini");
  std::printf("pair: the %s is through\n", role.c_str());
  return 0;
}
