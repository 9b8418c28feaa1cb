// Trace facilities and levels, and which callback gets what.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "system/one_process.hpp"

namespace cmi::one_process::trace_test {

namespace {

// The lines of a context, as its callbacks got them. Any thread.
class Lines {
 public:
  cmi_cbs callbacks(uint32_t facilities, uint32_t level) {
    cmi_cbs cbs{};
    cbs.alert = [](void* arg, const char* msg) { static_cast<Lines*>(arg)->add(true, msg); };
    cbs.log = [](void* arg, const char* msg) { static_cast<Lines*>(arg)->add(false, msg); };
    cbs.arg = this;
    cbs.trace_facilities = facilities;
    cbs.trace_level = level;
    return cbs;
  }

  std::vector<std::string> alerts() const { return copy(true); }
  std::vector<std::string> logs() const { return copy(false); }
  // Lines that have each of the words.
  size_t count(std::initializer_list<const char*> words) const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const Line& line) {
      return std::all_of(words.begin(), words.end(),
                         [&](const char* word) { return names(line.text, word); });
    }));
  }
  // The only line that has `text`; empty if there is none or more than one.
  std::string line_with(const std::string& text) const {
    const std::lock_guard lock(mutex_);
    std::string found;
    for (const Line& line : lines_) {
      if (line.text.find(text) == std::string::npos) continue;
      if (!found.empty()) return {};
      found = line.text;
    }
    return found;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }

 private:
  struct Line {
    bool alert;
    std::string text;
  };

  // Whether `word` stands in the text, whole: seg_get is not in seg_getva.
  static bool names(const std::string& text, const std::string& word) {
    const auto inside = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      const size_t end = at + word.size();
      if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end]))) {
        return true;
      }
    }
    return false;
  }
  void add(bool alert, const char* msg) {
    const std::lock_guard lock(mutex_);
    lines_.push_back({alert, msg});
  }
  std::vector<std::string> copy(bool alert) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> some;
    for (const Line& line : lines_) {
      if (line.alert == alert) some.push_back(line.text);
    }
    return some;
  }

  mutable std::mutex mutex_;
  std::vector<Line> lines_;
};

// Makes each call once, so that a trace of all facilities names it.
void call_everything(Process& process) {
  cmi_ctxt* ctxt = process.ctxt;
  cmi::one_process::in_thread([&] {
    CHECK(CALL(ini_th) == 0);
    CHECK(CALL(fini) == 0);
  });
  const cmi_seg home = process.segment();
  std::byte* view = process.attach(home);
  cmi_rseg* rseg = CALL(seg_exp, home, 0);
  REQUIRE(rseg != nullptr);
  CHECK(process.size_of(home, CMI_ATTR_RSEG_SIZE) > 0);
  cmi_token* tok = process.token(home);
  const cmi_seg import = CALL(seg_imp, rseg);
  CHECK(import > 0);
  CHECK(CALL(cmi_enb, 1) == 0);
  const cmi_fb epoch = CALL(open_fb);
  CHECK(CALL(flush_fb, epoch) == 0);
  CHECK(CALL(close_fb, epoch) == 0);
  CHECK(CALL(mb_fn) == 0);
  CHECK(CALL(wmb_fn) == 0);
  CHECK(CALL(rmb_fn) == 0);
  void* addresses[] = {view};
  CHECK(CALL(cflush, addresses, 1) == 0);
  uint64_t was = 0;
  CHECK(CALL(atm_cas, reinterpret_cast<uint64_t*>(view), 0, 1, &was) == 0);
  CHECK(CALL(evt_get) == nullptr);
  CMIFN(ctxt, 11, evt_ret)(nullptr, CMI_EVENT_RET_DONE);
  CHECK(CALL(tok_del, tok) == 0);
  CHECK(CALL(rseg_del, rseg) == 0);
  CHECK(CALL(seg_dt, home, view) == 0);
  CHECK(CALL(seg_ctl, import, CMI_SEG_RM, nullptr) == 0);
}

const struct {
  uint32_t facility;
  std::vector<const char*> calls;
} kFacilities[] = {
    {CMI_TRACE_FAC_INI, {"cmi_ini", "ini_th", "fini"}},
    {CMI_TRACE_FAC_CTRL, {"cmi_ctl", "seg_ctl", "attr_get"}},
    {CMI_TRACE_FAC_SEG, {"seg_get", "seg_exp", "seg_imp", "seg_at", "seg_dt", "rseg_del"}},
    {CMI_TRACE_FAC_TOK, {"tok_new", "tok_del"}},
    {CMI_TRACE_FAC_EVT, {"evt_get", "evt_ret"}},
    {CMI_TRACE_FAC_MEM,
     {"cmi_enb", "open_fb", "flush_fb", "close_fb", "mb_fn", "wmb_fn", "rmb_fn", "cflush",
      "atm_cas"}},
};

}  // namespace

TEST_SUITE_BEGIN("trace");

TEST_CASE_FIXTURE(ProcessWith<Lines>, "each_trace_facility_traces_its_own_calls") {
  Lines& lines = client;
  for (const auto& traced : kFacilities) {
    CAPTURE(traced.facility);
    lines.clear();
    cmi_cbs cbs = lines.callbacks(traced.facility, CMI_TRACE_LVL_HIGHEST);
    ini(CMI_VERNO, &cbs);
    call_everything(*this);
    end();
    for (const auto& other : kFacilities) {
      for (const char* call : other.calls) {
        CAPTURE(std::string(call));
        CHECK((lines.count({call}) > 0) == (other.facility == traced.facility));
      }
    }
  }
}

TEST_CASE_FIXTURE(ProcessWith<Lines>, "no_facility_or_no_level_traces_nothing") {
  Lines& lines = client;
  for (cmi_cbs cbs : {lines.callbacks(0, CMI_TRACE_LVL_HIGHEST),
                      lines.callbacks(CMI_TRACE_FAC_ALL, CMI_TRACE_LVL_NONE)}) {
    ini(CMI_VERNO, &cbs);
    call_everything(*this);
    CHECK_FAILS(CALL(seg_get, 0, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
    end();
    CHECK(lines.size() == 0);
  }
}

TEST_CASE_FIXTURE(ProcessWith<Lines>, "cmi_ini_with_an_unknown_trace_facility_or_level_is_inval") {
  Lines& lines = client;
  cmi_cbs cbs = lines.callbacks(CMI_TRACE_FAC_ALL + 1, CMI_TRACE_LVL_ERROR);
  CHECK_FAILS(cmi_ini(CMI_VERNO, &cbs), nullptr, CMI_ERR_INVAL);
  cbs = lines.callbacks(CMI_TRACE_FAC_ALL, CMI_TRACE_LVL_HIGHEST + 1);
  CHECK_FAILS(cmi_ini(CMI_VERNO, &cbs), nullptr, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(ProcessWith<Lines>, "trace_level_error_shows_failures_only") {
  Lines& lines = client;
  cmi_cbs cbs = lines.callbacks(CMI_TRACE_FAC_ALL, CMI_TRACE_LVL_ERROR);
  ini(CMI_VERNO, &cbs);
  call_everything(*this);
  CHECK(lines.size() == 0);

  CHECK_FAILS(CALL(seg_get, 0, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  CHECK(lines.count({"seg_get", "CMI_ERR_INVAL"}) == 1);
  CHECK_FAILS(CALL(ini_th), -1, CMI_ERR_BOUND);
  CHECK(lines.count({"ini_th", "CMI_ERR_BOUND"}) == 1);
  CHECK_FAILS(CALL(tok_new, 1 << 20, CMI_NADDR_ANY, CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
  CHECK(lines.count({"tok_new", "CMI_ERR_INVAL"}) == 1);
}

TEST_CASE_FIXTURE(ProcessWith<Lines>, "the_highest_trace_level_shows_every_call") {
  Lines& lines = client;
  cmi_cbs cbs = lines.callbacks(CMI_TRACE_FAC_ALL, CMI_TRACE_LVL_HIGHEST);
  ini(CMI_VERNO, &cbs);
  const std::string size = std::to_string(3 * unit());
  const cmi_seg seg = CALL(seg_get, 3 * unit(), CMI_SEG_NORESERVE);
  REQUIRE(seg > 0);
  CHECK(lines.count({"seg_get", size.c_str(), std::to_string(seg).c_str()}) == 1);
  CHECK_FAILS(CALL(seg_at, 987654, nullptr, 0), nullptr, CMI_ERR_INVAL);
  CHECK(lines.count({"seg_at", "987654", "CMI_ERR_INVAL"}) >= 1);

  call_everything(*this);
  end();
  for (const auto& facility : kFacilities) {
    for (const char* call : facility.calls) {
      CAPTURE(std::string(call));
      CHECK(lines.count({call}) > 0);
    }
  }
}

TEST_CASE_FIXTURE(ProcessWith<Lines>,
                  "a_line_names_the_call_its_arguments_its_result_and_the_cause") {
  Lines& lines = client;
  cmi_cbs cbs = lines.callbacks(CMI_TRACE_FAC_ALL, CMI_TRACE_LVL_DEBUG);
  ini(CMI_VERNO, &cbs);
  const cmi_seg home = segment();
  const cmi_seg import = import_own(home, CMI_ACC_READ);
  std::byte* view = attach(home);
  const std::string id = std::to_string(home), remote = std::to_string(import);
  Flat handle = export_segment(home);
  Flat token = copy_of(home, this->token(home));
  handle[100] ^= std::byte{1};
  token[100] ^= std::byte{1};
  cmi_ctl_cfg cfg{};
  cmi_ds ds{};
  uint64_t was = 0;
  size_t size = 0, length = 1;
  void* nowhere[] = {&was};

  // What is said beside the line of the call itself is not looked at.
  const auto said = [&](const char* call, std::initializer_list<const char*> words) {
    CAPTURE(std::string(call));
    const std::string line = lines.line_with(call);
    CAPTURE(line);
    for (const char* word : words) {
      CAPTURE(std::string(word));
      CHECK(line.find(word) != std::string::npos);
    }
    lines.clear();
  };

  lines.clear();
  REQUIRE(CALL(cmi_ctl, CMI_CTL_INFO, &cfg) == 0);
  said("cmi_ctl(", {"ctrl debug", "CMI_CTL_INFO", ": ok"});
  REQUIRE(CALL(seg_ctl, home, CMI_SEG_STATUS, &ds) == 0);
  said("seg_ctl(", {"ctrl debug", id.c_str(), "CMI_SEG_STATUS", ": ok"});
  const cmi_seg made = CALL(seg_get, unit(), CMI_SEG_NORESERVE);
  const std::string made_id = std::to_string(made);
  said("seg_get(", {"seg debug", "4096 bytes", "0x1", made_id.c_str()});
  REQUIRE(CALL(cmi_enb, 1) == 0);
  said("cmi_enb(", {"mem debug", "1", "ok"});

  CHECK(CALL(seg_get, 0, 0) == CMI_SEG_INVALID);
  said("seg_get(", {"seg error", "0 bytes", "CMI_ERR_INVAL", "prot_units"});
  CHECK(CALL(seg_get, SIZE_MAX - 4095, 0) == CMI_SEG_INVALID);
  said("seg_get(", {"CMI_ERR_NOMEM", "max_seg_sz"});
  CHECK(CALL(seg_get, unit(), 0x10000) == CMI_SEG_INVALID);
  said("seg_get(", {"CMI_ERR_NOTSUPP", "0x10000", "unknown flag"});
  CHECK(CALL(seg_at, home, view + 1, 0) == nullptr);
  said("seg_at(", {"CMI_ERR_INVAL", id.c_str(), "seg_alignment"});
  CHECK(CALL(seg_at, home, view, 0) == nullptr);
  said("seg_at(", {"CMI_ERR_NOMEM", "in use"});
  CHECK(CALL(seg_dt, home, &was) == -1);
  said("seg_dt(", {"CMI_ERR_INVAL", "no view"});
  CHECK(CALL(seg_exp, import, 0) == nullptr);
  said("seg_exp(", {"CMI_ERR_INVAL", remote.c_str(), "no such segment at home"});
  CHECK(CALL(seg_imp, reinterpret_cast<cmi_rseg*>(handle.data())) == CMI_SEG_INVALID);
  said("seg_imp(", {"CMI_ERR_INVAL", "malformed"});
  CHECK(CALL(rseg_del, nullptr) == -1);
  said("rseg_del(", {"CMI_ERR_INVAL", "null"});
  CHECK(CALL(tok_new, home, CMI_NADDR_ANY, 0) == nullptr);
  said("tok_new(", {"tok error", "CMI_ERR_INVAL", "no right"});
  CHECK(CALL(tok_del, reinterpret_cast<cmi_token*>(token.data())) == -1);
  said("tok_del(", {"CMI_ERR_INVAL", "malformed"});
  ds.token.tok = reinterpret_cast<cmi_token*>(token.data());
  CHECK(CALL(seg_ctl, import, CMI_SEG_TOKEN, &ds) == -1);
  said("seg_ctl(", {"CMI_SEG_TOKEN", "CMI_ERR_INVAL", "malformed"});
  CHECK(CALL(seg_ctl, 77, CMI_SEG_INFO, &ds) == -1);
  said("seg_ctl(", {"77", "CMI_SEG_INFO", "CMI_ERR_INVAL", "no such segment"});
  CHECK(CALL(attr_get, home, CMI_ATTR_TOKEN_SIZE, &size, &length) == -1);
  said("attr_get(", {id.c_str(), "CMI_ATTR_TOKEN_SIZE", "CMI_ERR_NOMEM", "too small"});
  CHECK(CALL(cmi_ctl, CMI_CTL_RECONF_TOUT, &(cfg = {})) == -1);
  said("cmi_ctl(", {"CMI_CTL_RECONF_TOUT", "CMI_ERR_INVAL", "timeout of 0"});
  CHECK(CALL(cmi_ctl, 4711, &cfg) == -1);
  said("cmi_ctl(", {"unknown", "0x1267", "CMI_ERR_INVAL"});
  CHECK(CALL(flush_fb, nullptr) == -1);
  said("flush_fb(", {"mem error", "CMI_ERR_INVAL", "not an epoch of this thread"});
  CHECK(CALL(cflush, nowhere, 1) == -1);
  said("cflush(", {"CMI_ERR_INVAL", "in no view"});
  CHECK(CALL(atm_cas, &was, 0, 1, &was) == -1);
  said("atm_cas(", {"CMI_ERR_INVAL", "in no view"});
  CHECK(CALL(ini_th) == -1);
  said("ini_th(", {"ini error", "CMI_ERR_BOUND", "registered already"});
  CMIFN(ctxt, 11, evt_ret)(nullptr, CMI_EVENT_RET_DONE);
  said("evt_ret(", {"evt warn", "no event"});
}

TEST_CASE_FIXTURE(ProcessWith<Lines>, "each_trace_level_shows_its_own_lines_and_those_below_it") {
  Lines& lines = client;
  const struct {
    uint32_t level;
    size_t errors, warnings, calls, barriers;
  } kLevels[] = {{CMI_TRACE_LVL_NONE, 0, 0, 0, 0},  {CMI_TRACE_LVL_ERROR, 1, 0, 0, 0},
                 {CMI_TRACE_LVL_WARN, 1, 1, 0, 0},  {CMI_TRACE_LVL_INFO, 1, 1, 0, 0},
                 {CMI_TRACE_LVL_DEBUG, 1, 1, 1, 0}, {CMI_TRACE_LVL_HIGHEST, 1, 1, 1, 1}};
  for (const auto& l : kLevels) {
    CAPTURE(l.level);
    cmi_cbs cbs = lines.callbacks(CMI_TRACE_FAC_ALL, l.level);
    ini(CMI_VERNO, &cbs);
    lines.clear();
    CHECK_FAILS(CALL(seg_get, 1, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
    CMIFN(ctxt, 11, evt_ret)(nullptr, CMI_EVENT_RET_DONE);
    CHECK(CALL(seg_get, 4096, 0) > 0);
    CHECK(CALL(rmb_fn) == 0);
    CHECK(lines.count({"error"}) == l.errors);
    CHECK(lines.count({"warn", "evt_ret"}) == l.warnings);
    CHECK(lines.count({"debug", "seg_get"}) == l.calls);
    CHECK(lines.count({"highest", "rmb_fn"}) == l.barriers);
    end();
    lines.clear();
  }
}

// Set by the environment, lines go to the file whatever the client asked for, one for each call.
TEST_CASE_FIXTURE(Process, "without_callbacks_lines_go_to_the_trace_file") {
  const std::string path = folder() + "-trace";
  ::setenv("CMI_TRACE", "seg,tok:debug", 1);
  ::setenv("CMI_TRACE_FILE", path.c_str(), 1);
  ini();
  const cmi_seg seg = segment(3);
  CHECK_FAILS(CALL(tok_new, seg, nullptr, CMI_ACC_READ), nullptr, CMI_ERR_INVAL);
  CHECK(CALL(cmi_enb, 1) == 0);  // of another facility
  end();
  std::ifstream file(path);
  std::string line, all;
  while (std::getline(file, line)) {
    CHECK(line.starts_with("cmi[" + std::to_string(::getpid()) + "] "));
    all += line + "\n";
  }
  CHECK(all.find("seg debug: seg_get(12288 bytes, flags 0x0): " + std::to_string(seg)) !=
        std::string::npos);
  CHECK(all.find("tok error: tok_new(segment " + std::to_string(seg)) != std::string::npos);
  CHECK(all.find("cmi_enb") == std::string::npos);
  ::unlink(path.c_str());
}

TEST_CASE_FIXTURE(ProcessWith<Lines>, "error_lines_go_to_alert_and_the_rest_to_log") {
  Lines& lines = client;
  cmi_cbs cbs = lines.callbacks(CMI_TRACE_FAC_SEG, CMI_TRACE_LVL_HIGHEST);
  ini(CMI_VERNO, &cbs);
  lines.clear();
  CHECK(CALL(seg_get, unit(), 0) > 0);
  CHECK(lines.alerts().empty());
  CHECK_FALSE(lines.logs().empty());

  lines.clear();
  CHECK_FAILS(CALL(seg_get, 0, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  CHECK_FALSE(lines.alerts().empty());
  // One error is one line of level error.
  CHECK(lines.alerts().size() == 1);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::trace_test
