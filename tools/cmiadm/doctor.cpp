// cmiadm doctor: what works here, what does not, and what mends it. Finds out with the library's
// own code, in this process, so that the answer is the one that cmi_ini() would get.
#include "doctor.hpp"

#include <algorithm>

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
    std::printf("%-8s %-*s  %s\n", mark(f.health), static_cast<int>(width), f.what.c_str(),
                printable(f.found).c_str());
    if (!f.mend.empty()) {
      std::printf("%-8s %-*s  mend: %s\n", "", static_cast<int>(width), "", f.mend.c_str());
    }
  }
}

void print_json(const Report& report, Health worst) {
  Json json;
  json.open('{').field("health", mark(worst)).key("findings").open('[');
  for (const Finding& f : report) {
    json.open('{').field("health", mark(f.health)).field("what", f.what).field("found", f.found);
    json.key("mend");
    f.mend.empty() ? json.null() : json.value(f.mend);
    json.close();
  }
  json.close().close();
  json.print();
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
    examine_kernel(report, env->kernel);
    examine_memory(report, *env);
    examine_limits(report);
    examine_fabric(report, *env);
    examine_nodes(report, options.look());
  }
  Health worst = Health::kGood;
  for (const Finding& f : report) worst = std::max(worst, f.health);
  options.json ? print_json(report, worst) : print(report);
  return worst == Health::kBroken ? kTrouble : kFine;
}

}  // namespace cmi::adm
