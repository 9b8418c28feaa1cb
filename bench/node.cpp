// Calls of the library, each checked.
#include "node.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace bench {

namespace {
void called(bool good, const char* what) {
  if (!good) {
    fail(std::string(what) + " failed with error " +
         std::to_string(static_cast<int>(cmi_get_error(nullptr))));
  }
}

size_t attribute(cmi_ctxt* ctxt, cmi_seg segment, int32_t which) {
  size_t value = 0, length = sizeof value;
  called(CMIFN(ctxt, 10, attr_get)(ctxt, segment, which, &value, &length) == 0, "attr_get");
  return value;
}
}  // namespace

void Node::on_trace(void* self, const char* line) {
  const char* named = std::strstr(line, "cmi_ini: version");
  if (named == nullptr) return;
  named = std::strstr(named, "provider ");
  if (named == nullptr) return;
  std::string& provider = static_cast<Node*>(self)->provider_;
  provider = named + std::strlen("provider ");
  while (!provider.empty() && provider.back() <= ' ') provider.pop_back();
}

void Node::on_alert(void* self, const char* line) {
  std::fprintf(stderr, "libcmi: %s\n", line);
  static_cast<Node*>(self)->alerts_.fetch_add(1);
}

Node::Node(const std::string& name, const std::string& provider) {
  setenv("CMI_NODE", name.c_str(), 1);
  cmi_cbs callbacks{};
  callbacks.alert = &Node::on_alert;
  callbacks.log = &Node::on_trace;
  callbacks.arg = this;
  callbacks.trace_facilities = CMI_TRACE_FAC_INI;
  callbacks.trace_level = CMI_TRACE_LVL_INFO;
  ctxt_ = cmi_ini(10, &callbacks);
  called(ctxt_ != nullptr, "cmi_ini");
  must(provider_ == provider,
       "the library took provider '" + provider_ + "', raw libfabric took '" + provider + "'");
  called(CMIFN(ctxt_, 10, cmi_enb)(ctxt_, 1) == 0, "cmi_enb");
}

Node::~Node() { CMIFN(ctxt_, 10, fini)(ctxt_); }

Stats Node::stats() const {
  Stats stats{};
  stats.size = sizeof stats;
  called(::cmi_ofi_get_stats(ctxt_, &stats) == 0, "cmi_ofi_get_stats");
  return stats;
}

OtherThread::OtherThread(Node& node) : node_(node) {
  called(CMIFN(node.ctxt(), 10, ini_th)(node.ctxt()) == 0, "ini_th");
  called(CMIFN(node.ctxt(), 10, cmi_enb)(node.ctxt(), 1) == 0, "cmi_enb");
}

OtherThread::~OtherThread() { CMIFN(node_.ctxt(), 10, fini)(node_.ctxt()); }

void barrier() { called(cmi_wmb() == 0, "cmi_wmb"); }

HomeSegment::HomeSegment(Node& node, size_t size, bool exported, int32_t flags, Control& control)
    : node_(node) {
  cmi_ctxt* ctxt = node.ctxt();
  segment_ = CMIFN(ctxt, 10, seg_get)(ctxt, size, flags);
  called(segment_ != CMI_SEG_INVALID, "seg_get");
  at_ = static_cast<std::byte*>(CMIFN(ctxt, 10, seg_at)(ctxt, segment_, nullptr, 0));
  called(at_ != nullptr, "seg_at");
  const bool sparse = (flags & CMI_SEG_NORESERVE) != 0;
  for (size_t i = 0; i < size && !sparse; i += kPage) at_[i] = std::byte{0};
  control.segment_size = size;
  if (!exported) return;
  handle_ = CMIFN(ctxt, 10, seg_exp)(ctxt, segment_, 0);
  called(handle_ != nullptr, "seg_exp");
  token_ = CMIFN(ctxt, 10, tok_new)(ctxt, segment_, CMI_NADDR_ANY,
                                    CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC);
  called(token_ != nullptr, "tok_new");
  control.handle.set(handle_, attribute(ctxt, segment_, CMI_ATTR_RSEG_SIZE));
  control.token.set(token_, attribute(ctxt, segment_, CMI_ATTR_TOKEN_SIZE));
}

HomeSegment::~HomeSegment() {
  cmi_ctxt* ctxt = node_.ctxt();
  if (token_ != nullptr) CMIFN(ctxt, 10, tok_del)(ctxt, token_);
  if (handle_ != nullptr) CMIFN(ctxt, 10, rseg_del)(ctxt, handle_);
  CMIFN(ctxt, 10, seg_ctl)(ctxt, segment_, CMI_SEG_RM, nullptr);
  CMIFN(ctxt, 10, seg_dt)(ctxt, segment_, at_);
}

Imported::Imported(Node& node, Control& control) : node_(node) {
  cmi_ctxt* ctxt = node.ctxt();
  alignas(8) std::byte handle[sizeof control.handle.bytes], token[sizeof control.token.bytes];
  std::memcpy(handle, control.handle.bytes, control.handle.size);
  std::memcpy(token, control.token.bytes, control.token.size);
  segment_ = CMIFN(ctxt, 10, seg_imp)(ctxt, reinterpret_cast<cmi_rseg*>(handle));
  called(segment_ != CMI_SEG_INVALID, "seg_imp");
  cmi_ds set{};
  set.op.token.tok = reinterpret_cast<cmi_token*>(token);
  called(CMIFN(ctxt, 10, seg_ctl)(ctxt, segment_, CMI_SEG_TOKEN, &set) == 0, "CMI_SEG_TOKEN");
  at_ = static_cast<std::byte*>(CMIFN(ctxt, 10, seg_at)(ctxt, segment_, nullptr, 0));
  called(at_ != nullptr, "seg_at");
}

Imported::~Imported() {
  cmi_ctxt* ctxt = node_.ctxt();
  CMIFN(ctxt, 10, seg_dt)(ctxt, segment_, at_);
  CMIFN(ctxt, 10, seg_ctl)(ctxt, segment_, CMI_SEG_RM, nullptr);
}

}  // namespace bench
