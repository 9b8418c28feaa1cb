// All calls of the CMI library that the program makes.
#include "memory.hpp"

#include <utility>

namespace wordcount {

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      segment_(other.segment_),
      view_(other.view_),
      size_(other.size_),
      handle_(other.handle_),
      token_(other.token_),
      epoch_(other.epoch_),
      loads_(other.loads_),
      stores_(other.stores_),
      swaps_(other.swaps_) {}

namespace {

// The home offers the segment before it says so: it is found at once, or the home has ended.
constexpr uint32_t kFindMilliseconds = 5000;

}  // namespace

void SharedMemory::check(bool worked, const char* call) const {
  if (worked) return;
  std::fflush(nullptr);
  give_up_for_loss(fmt::format("{} failed with error {}: {}", call,
                               static_cast<int>(cmi_get_error(context_)),
                               cmi_ofi_error_text(context_)));
}

void SharedMemory::begin(size_t size) {
  size_ = size;
  context_ = cmi_ini(10, nullptr);
  check(context_ != nullptr, "cmi_ini");
}

SharedMemory SharedMemory::make(size_t size) {
  SharedMemory memory;
  memory.begin(size);
  cmi_ctxt* context = memory.context_;
  memory.segment_ = CMIFN(context, 10, seg_get)(context, size, 0);
  memory.check(memory.segment_ != CMI_SEG_INVALID, "seg_get");
  memory.view_ =
      static_cast<char*>(CMIFN(context, 10, seg_at)(context, memory.segment_, nullptr, 0));
  memory.check(memory.view_ != nullptr, "seg_at");
  memory.handle_ = CMIFN(context, 10, seg_exp)(context, memory.segment_, 0);
  memory.check(memory.handle_ != nullptr, "seg_exp");
  memory.token_ = CMIFN(context, 10, tok_new)(context, memory.segment_, CMI_NADDR_ANY,
                                              CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC);
  memory.check(memory.token_ != nullptr, "tok_new");
  return memory;
}

SharedMemory SharedMemory::find(const std::string& where, size_t size) {
  SharedMemory memory;
  memory.begin(size);
  cmi_ctxt* context = memory.context_;
  memory.segment_ = cmi_ofi_find(context, where.c_str(), "wordcount", kFindMilliseconds);
  memory.check(memory.segment_ != CMI_SEG_INVALID, "cmi_ofi_find");
  memory.view_ =
      static_cast<char*>(CMIFN(context, 10, seg_at)(context, memory.segment_, nullptr, 0));
  memory.check(memory.view_ != nullptr, "seg_at");
  memory.check(CMIFN(context, 10, cmi_enb)(context, 1) == 0, "cmi_enb");
  return memory;
}

void SharedMemory::close() {
  cmi_ctxt* context = context_;
  if (context == nullptr) return;
  const auto done = [&](int result, const char* call) { check(result == 0, call); };
  if (token_ != nullptr) done(CMIFN(context, 10, tok_del)(context, token_), "tok_del");
  if (handle_ != nullptr) done(CMIFN(context, 10, rseg_del)(context, handle_), "rseg_del");
  done(CMIFN(context, 10, seg_dt)(context, segment_, view_), "seg_dt");
  if (handle_ != nullptr) {
    done(CMIFN(context, 10, seg_ctl)(context, segment_, CMI_SEG_RM, nullptr),
         "seg_ctl(CMI_SEG_RM)");
  }
  done(CMIFN(context, 10, fini)(context), "fini");
  context_ = nullptr;
}

bool SharedMemory::offer(const std::string& where) {
  return cmi_ofi_offer(context_, where.c_str(), "wordcount", handle_, token_) == 0;
}

bool SharedMemory::compare_and_swap(Offset at, uint64_t& expected, uint64_t desired) {
  uint64_t found = 0;
  check(CMIFN(context_, 10, atm_cas)(context_, place<uint64_t>(at, 1), expected, desired, &found) ==
            0,
        "atm_cas");
  swaps_++;
  if (found == expected) return true;
  expected = found;
  return false;
}

void SharedMemory::publish() { check(cmi_wmb() == 0, "cmi_wmb"); }

void SharedMemory::open_epoch() {
  epoch_ = CMIFN(context_, 10, open_fb)(context_);
  check(epoch_ != nullptr, "open_fb");
}

void SharedMemory::flush_epoch() {
  check(CMIFN(context_, 10, flush_fb)(context_, epoch_) == 0, "flush_fb");
}

void SharedMemory::close_epoch() {
  check(CMIFN(context_, 10, close_fb)(context_, std::exchange(epoch_, nullptr)) == 0, "close_fb");
}

cmi_ofi_stats SharedMemory::library_counters() const {
  cmi_ofi_stats counters = {};
  counters.size = sizeof(counters);
  check(cmi_ofi_get_stats(context_, &counters) == 0, "cmi_ofi_get_stats");
  return counters;
}

}  // namespace wordcount
