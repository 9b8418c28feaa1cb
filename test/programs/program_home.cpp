// program_home FILE: the home of the memory of a program that runs elsewhere. Makes and exports a
// segment, says so in FILE and by the line "ready", and waits for the end of standard input. Then
// it prints how many blocks were taken, and how many of its pages hold anything but zeros: what the
// program stored has come home.
#include <cmi.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "program_export.hpp"

namespace {

constexpr size_t kSize = size_t{1} << 30, kPage = 4096;

int failed(const char* what) {
  std::fprintf(stderr, "program_home: %s failed with error %d\n", what,
               static_cast<int>(cmi_get_error(nullptr)));
  return 1;
}

size_t attribute(cmi_ctxt* ctxt, cmi_seg segment, int32_t which) {
  size_t value = 0, length = sizeof value;
  return CMIFN(ctxt, 10, attr_get)(ctxt, segment, which, &value, &length) == 0 ? value : 0;
}

}  // namespace

int main(int argc, char** argv) {
  using cmi::test::ProgramExport;
  if (argc != 2) return failed("the command line");
  const int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(ProgramExport)) != 0) return failed("the file");
  void* const memory =
      mmap(nullptr, sizeof(ProgramExport), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return failed("the file");
  auto* const exported = new (memory) ProgramExport;
  cmi_cbs callbacks{};
  callbacks.alert = [](void*, const char* line) { std::fprintf(stderr, "libcmi: %s\n", line); };
  cmi_ctxt* const ctxt = cmi_ini(10, &callbacks);
  if (ctxt == nullptr || CMIFN(ctxt, 10, cmi_enb)(ctxt, 1) != 0) return failed("cmi_ini");
  // Consistent: processes of stress-ng end by a signal, and what they had not published then is not
  // to raise an exception here.
  const cmi_seg segment =
      CMIFN(ctxt, 10, seg_get)(ctxt, kSize, CMI_SEG_NORESERVE | CMI_SEG_CLIENT_CONSIST);
  if (segment == CMI_SEG_INVALID) return failed("seg_get");
  const auto* const at =
      static_cast<const std::byte*>(CMIFN(ctxt, 10, seg_at)(ctxt, segment, nullptr, 0));
  if (at == nullptr) return failed("seg_at");
  cmi_rseg* const handle = CMIFN(ctxt, 10, seg_exp)(ctxt, segment, 0);
  cmi_token* const token =
      CMIFN(ctxt, 10, tok_new)(ctxt, segment, CMI_NADDR_ANY, CMI_ACC_READ | CMI_ACC_WRITE);
  const size_t handle_size = attribute(ctxt, segment, CMI_ATTR_RSEG_SIZE),
               token_size = attribute(ctxt, segment, CMI_ATTR_TOKEN_SIZE);
  if (handle == nullptr || token == nullptr || handle_size > sizeof exported->handle ||
      token_size > sizeof exported->token) {
    return failed("the export");
  }
  std::memcpy(exported->handle, handle, handle_size);
  std::memcpy(exported->token, token, token_size);
  exported->size = kSize;
  std::puts("ready");
  std::fflush(stdout);
  for (char ignored; read(0, &ignored, 1) > 0;) {
  }
  static const std::byte kZeros[kPage] = {};
  size_t pages = 0;
  for (size_t i = 0; i < exported->taken.load() && i < kSize; i += kPage) {
    pages += std::memcmp(at + i, kZeros, kPage) != 0 ? 1 : 0;
  }
  std::printf("%llu blocks, %zu pages\n", static_cast<unsigned long long>(exported->blocks.load()),
              pages);
  CMIFN(ctxt, 10, tok_del)(ctxt, token);
  CMIFN(ctxt, 10, rseg_del)(ctxt, handle);
  CMIFN(ctxt, 10, seg_ctl)(ctxt, segment, CMI_SEG_RM, nullptr);
  CMIFN(ctxt, 10, fini)(ctxt);
  return 0;
}
