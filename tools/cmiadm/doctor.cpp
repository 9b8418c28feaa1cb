// cmiadm doctor: what works here, what does not, and what mends it. Finds out with the library's
// own code, in this process, so that the answer is the one that cmi_ini() would get.
#include "doctor.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/log.hpp"
#include "text.hpp"

namespace cmi::adm {

Overheard::Overheard() {
  TraceSink sink;
  sink.alert = [](void* arg, const char* line) { static_cast<Overheard*>(arg)->alert_ = line; };
  sink.log = [](void*, const char*) {};
  sink.arg = this;
  Trace::get().configure(kFacAll, kError, sink);
}

Overheard::~Overheard() { Trace::get().configure(0, 0, {}); }

namespace {

const char* mark(Health h) {
  switch (h) {
    case Health::kGood:
      return "ok";
    case Health::kLimited:
      return "limited";
    case Health::kBroken:
      return "BROKEN";
  }
  return "";
}

void print(const Report& report) {
  size_t width = 0;
  for (const Finding& f : report) width = std::max(width, f.what.size());
  for (const Finding& f : report) {
    fmt::print("{:<8} {:<{}}  {}\n", mark(f.health), f.what, width, printable(f.found));
    if (!f.mend.empty()) fmt::print("{:<8} {:<{}}  mend: {}\n", "", "", width, f.mend);
  }
}

void print_json(const Report& report, Health worst) {
  Json findings = Json::array();
  for (const Finding& f : report) {
    findings.push_back({{"health", mark(f.health)},
                        {"what", f.what},
                        {"found", f.found},
                        {"mend", text_or_null(f.mend)}});
  }
  print_line(Json{{"health", mark(worst)}, {"findings", std::move(findings)}});
}

}  // namespace

int doctor(const Options& options) {
  Report report;
  Result<context::Environment> env = Status::kInval;
  {
    Overheard trace;
    env = context::read_environment();
    if (env) {
      report.push_back({Health::kGood, "environment", "all CMI_ variables can be read", ""});
    } else {
      report.push_back({Health::kBroken, "environment", trace.last_alert(),
                        "unset the variable, or set it as cmi(7) says"});
    }
  }
  if (env) {
    env->runtime_dir = options.runtime_dir;
    examine_proc(report);
    examine_kernel(report, env->kernel);
    examine_memory(report, *env);
    examine_local(report, *env);
    examine_limits(report);
    examine_fabric(report, *env);
    examine_nodes(report, options.look());
    examine_start(report, *env);
  }
  Health worst = Health::kGood;
  for (const Finding& f : report) worst = std::max(worst, f.health);
  options.json ? print_json(report, worst) : print(report);
  return worst == Health::kBroken ? kTrouble : kFine;
}

}  // namespace cmi::adm
