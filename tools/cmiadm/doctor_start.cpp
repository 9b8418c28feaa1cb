// The last word of cmiadm doctor: cmi_ini() itself, in this process, and where it ends if it does.
#include <cmi.h>

#include <cstdlib>

#include "core/context/start_stage.hpp"
#include "doctor.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

using context::Stage;

const char* name_of(Stage stage) {
  switch (stage) {
    case Stage::kArguments:
      return "reading its arguments";
    case Stage::kEnvironment:
      return "reading the environment";
    case Stage::kMachine:
      return "looking at the machine";
    case Stage::kNode:
      return "joining the node";
    case Stage::kNetwork:
      return "opening the network";
    case Stage::kMemory:
      return "preparing for faults, and starting its threads";
  }
  return "";
}

const char* mend_of(Stage stage, const std::string& said) {
  if (said.find("too many open files") != said.npos || !descriptors_left(40)) return kMoreFiles;
  switch (stage) {
    case Stage::kEnvironment:
      return "unset the variable, or set it as cmi(7) says";
    case Stage::kMachine:
      return kMendPages;
    case Stage::kNode:
      return "what \"runtime folder\" and \"/proc\" say above; cmiadm reap";
    case Stage::kNetwork:
      return "what \"address\" and \"provider\" say above";
    default:
      return "what \"userfaultfd\" says above; with CMI_TRACE=all:debug a program says more";
  }
}

}  // namespace

void examine_start(Report& report, const context::Environment& env) {
  setenv("CMI_RUNTIME_DIR", env.runtime_dir.c_str(), 1);
  std::string said;
  cmi_cbs callbacks{};
  callbacks.trace_facilities = CMI_TRACE_FAC_ALL;
  callbacks.trace_level = CMI_TRACE_LVL_ERROR;
  callbacks.arg = &said;
  // What is said last sums up what has failed; what the call itself came to is said by its error.
  callbacks.alert = [](void* arg, const char* line) {
    auto& all = *static_cast<std::string*>(arg);
    const std::string one = line;
    if (one.find("cmi_ini(") != one.npos) return;
    all += (all.empty() ? "" : "; ") + one;
  };
  callbacks.log = [](void*, const char*) {};
  cmi_ctxt* const ctxt = cmi_ini(CMI_VERNO, &callbacks);
  if (ctxt != nullptr) {
    CMIFN(ctxt, 10, fini)(ctxt);
    report.push_back({Health::kGood, "cmi_ini", "succeeds", ""});
    return;
  }
  const Stage stage = context::t_stage;
  report.push_back(
      {Health::kBroken, "cmi_ini",
       fmt::format("fails with error {} while {}{}{}", static_cast<int>(cmi_get_error(nullptr)),
                   name_of(stage), said.empty() ? "" : ": ", said),
       mend_of(stage, said)});
}

}  // namespace cmi::adm
