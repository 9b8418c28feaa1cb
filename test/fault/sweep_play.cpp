// How a play of the fault sweep comes to be, and what each of its scenes asks of those that live.
#include "fault/sweep_play.hpp"

#include <csignal>
#include <fstream>

#include "core/base/clock.hpp"

namespace cmi::test::sweep {

namespace {
constexpr const char* kNodes[] = {"home", "home", "peer", "third"};
}  // namespace

uint64_t times(const Passages& passages, std::string_view point) {
  const auto found = passages.find(std::string(point));
  return found == passages.end() ? 0 : found->second;
}

Play::Play(const Point& point, Role victim, uint64_t nth)
    : point_(point),
      has_(point.name),
      faulty_(victim),
      nth_(nth),
      victim_(victim),
      lack_(lack_of(point)) {
  for (Role role : {kHome, kSecond, kPeer, kThird}) {
    actors_[role].process = &cluster_.spawn_bare(kNodes[role], environment(role));
  }
  begin();
  share();
  work();
  if (has_.pauses) pause();
  if (has_.floods) flood();
  resize();
  adopt();
  go_through();
  withdraw();
  end();
}

void Play::again() {
  Process& home = cluster_.spawn_bare("home");
  Process& peer = cluster_.spawn_bare("peer");
  auto starting = home.start([] { return start_context(CMI_VERNO); });
  REQUIRE(ini(peer).ok());
  REQUIRE(starting.get().ok());
  // A reservation outlives its maker, however that ends: until somebody deletes it.
  for (uint64_t key : reservations()) {
    CHECK(reserve(home, CMI_CTL_MEM_RESERVE_SET, 0, key).ok());
    CHECK(reserve(home, CMI_CTL_MEM_RESERVE_DEL, 0, 0).ok());
  }
  const Export exported = export_segment(home);
  const Import import = import_segment(peer, exported);
  CHECK(publish(peer, import.at, 5));
  CHECK(load(home, exported.at).value == 5);
  CHECK(publish(home, exported.at, 6));
  CHECK(load(peer, import.at).value == 6);
}

Env Play::environment(Role role) const {
  Env env{{"CMI_FAULT_COUNT", counts(role)}};
  std::string points;
  if (role == faulty_) {
    points =
        std::string(point_.name) + "#" + std::to_string(nth_) + (point_.fails ? "=fail" : "=kill");
    // Only kernels before 6.4 need what this one stands in.
    if (point_.name == "map_before_protect") env.emplace_back("CMI_KERNEL", "6.1");
  }
  // Soon, and not before the others could be heard of.
  if (has_.unanswered || (has_.pauses && role == kHome)) env.emplace_back("CMI_DEAD_AFTER", "2000");
  // The barrier finds everything still to be sent, to a home that is slow to answer.
  if (has_.floods && role == kHome) points += ";server_before_reply=delay:5000";
  if ((has_.floods || has_.in_order) && role == kPeer) points += ";no_aging=fail";
  env.emplace_back("CMI_FAULT_POINT", points);
  if (has_.mapped) env.emplace_back("CMI_LOCAL", "on");
  return env;
}

Answer Play::reserve(Process& process, int32_t command, uint64_t size, uint64_t key) {
  return process.run(
      [](int32_t c, uint64_t s, uint64_t k) {
        cmi_ctl_cfg cfg{};
        cfg.mreq.mem_reserve = s;
        cfg.mreq.rsv_key = k;
        const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), c, &cfg);
        return answer(result, result != 0);
      },
      command, size, key);
}

std::vector<uint64_t> Play::reservations() const {
  constexpr std::streamoff kReservations = 794752, kEach = 32;
  std::vector<uint64_t> keys;
  for (const std::string& path : cluster_.files()) {
    if (!path.ends_with("/registry")) continue;
    std::ifstream registry(path, std::ios::binary);
    for (int i = 0; i < 64; ++i) {
      uint64_t key = 0;
      registry.seekg(kReservations + i * kEach);
      registry.read(reinterpret_cast<char*>(&key), sizeof key);
      if (key != 0) keys.push_back(key);
    }
  }
  return keys;
}

bool Play::dying() {
  Actor& victim = actors_[victim_];
  if (victim.process != nullptr && !victim.gone) {
    try {
      const int status = victim.process->wait_end(1);
      victim.gone = true;
      died_ = died_by(status, SIGKILL) && !point_.fails;
      CHECK_MESSAGE(died_, victim.process->name(), ": ", describe_status(status));
    } catch (const ChildFailed&) {
      return false;  // it lives
    }
  }
  return died_;
}

bool Play::good(const Answer& answer, const char* what) {
  if (answer.ok()) return true;
  if (lack_.error != CMI_ERR_NONE && answer.failed(lack_.error)) return false;
  const bool says_why = answer.error == CMI_ERR_INVAL || answer.error == CMI_ERR_STORE ||
                        answer.error == CMI_ERR_RECONFIG || answer.error == CMI_ERR_HW;
  CHECK_MESSAGE((dying() && says_why), std::string(what), ": ", answer);
  return false;
}

bool Play::good(const Access& access, const char* what, const std::set<uint64_t>& values) {
  if (access.cause() == Fault::kNone) {
    const bool known = values.empty() || values.contains(access.value);
    CHECK_MESSAGE(known, std::string(what), ": ", access.value);
    return known;
  }
  const int cause = access.cause();
  if (lack_.cause != Fault::kNone && cause == lack_.cause) return false;
  const bool excused = dying();
  const bool says_why = cause == CMI_ERROR_SINVAL || cause == CMI_ERROR_TRANSIENT ||
                        cause == CMI_ERROR_TOKEN || cause == CMI_ERROR_CONSIST;
  CHECK_MESSAGE((excused && says_why), std::string(what), ": cause ", cause);
  return false;
}

void Play::begin() {
  std::map<Role, Pending<Answer>> starting;
  for (Role role : {kHome, kSecond, kPeer, kThird}) {
    starting.emplace(role, process(role).start([] { return start_context(CMI_VERNO); }));
  }
  for (auto& [role, pending] : starting) {
    bool refused = false;
    if (let(role,
            [&, &answer = pending](Process& p) {
              const Answer started = answer.get();
              refused = lack_.error != CMI_ERR_NONE && started.failed(lack_.error);
              CHECK_MESSAGE((started.ok() || refused), "cmi_ini on ", p.name(), ": ", started);
            }) &&
        !refused) {
      continue;
    }
    // Killed while it came up, or refused: the next one on its node takes its place, and nobody
    // is excused.
    actors_[role] = {&cluster_.spawn(kNodes[role]), false};
    victim_ = kRoles;
  }
}

void Play::share() {
  // A home that is killed while it makes and exports leaves nothing to share.
  let(kHome, [&](Process& p) {
    const Answer made = seg_get(p, kPages * kPage);
    if (!good(made, "seg_get")) return;
    exported_.seg = made.seg();
    const Answer attached = seg_at(p, exported_.seg);
    if (!good(attached, "seg_at")) return;
    exported_.at = attached.at();
    exported_.handle = seg_exp(p, exported_.seg);
    exported_.token = tok_new(p, exported_.seg, kAllRights);
    second_token_ = tok_new(p, exported_.seg, kAllRights);
    kept_ = export_segment(p, kPage);  // nobody takes it away before the end
  });
  if (exported_.token.ok() && here(kHome)) {
    let(kSecond, [&](Process& p) {
      const Answer attached = seg_at(p, exported_.seg);
      if (good(attached, "seg_at on the home's node")) second_ = attached.at();
      good(seg_at(p, kept_.seg), "seg_at of what is kept");
    });
  }
  if (!exported_.token.ok()) return;
  for (Role role : {kPeer, kThird}) {
    let(role, [&](Process& p) {
      const Answer imported = seg_imp(p, exported_.handle);
      if (!good(imported, "seg_imp")) return;
      // What there was no memory for is done once there is.
      if (!good(cmi_enb(p, 1), "cmi_enb") && !good(cmi_enb(p, 1), "cmi_enb again")) return;
      if (!good(set_token(p, imported.seg(), token(role)), "CMI_SEG_TOKEN")) return;
      const Answer attached = seg_at(p, imported.seg());
      if (good(attached, "seg_at of an import")) views_[role] = attached.at();
      segments_[role] = imported.seg();
    });
  }
  views_[kHome] = exported_.at;
  views_[kSecond] = second_;
}

void Play::put_and_see(Role role, uint64_t page, uint64_t value, const char* what) {
  std::set<uint64_t>& may_be = words_[page];
  let(role, [&](Process& p) {
    if (views_[role] == 0) return;
    may_be.insert(value);
    if (good(store(p, views_[role] + page * kPage, value), what) && good(wmb(p), what)) {
      may_be = {value};
    } else if (has_.unanswered && segments_[role] != 0) {
      // The home lives: its importer sets its token again and goes on.
      good(set_token(p, segments_[role], token(role)), "CMI_SEG_TOKEN again");
      if (good(store(p, views_[role] + page * kPage, value), what) && good(wmb(p), what)) {
        may_be = {value};
      }
    }
  });
  see(page, may_be, what);
}

void Play::see(uint64_t page, const std::set<uint64_t>& values, const char* what) {
  for (Role role : {kHome, kSecond, kPeer, kThird}) {
    if (views_[role] == 0) continue;
    let(role, [&](Process& p) {
      const uint64_t at = views_[role] + page * kPage;
      Access seen = load(p, at);
      // Nobody tells importers what the node of a dead home stores from then on. They have what
      // they cached for as long as it takes them to hear of that death, and then lose it.
      if (seen.cause() == Fault::kNone && !values.contains(seen.value) &&
          (role == kPeer || role == kThird) && victim_ == kHome && dying()) {
        const Deadline soon = Deadline::in(10 * cmi::kSecond);  // kSecond is a role
        while (seen.cause() != CMI_ERROR_SINVAL && !soon.passed()) seen = load(p, at);
        CHECK_MESSAGE(seen.cause() == CMI_ERROR_SINVAL, std::string(what), ": ", p.name(),
                      " goes on reading ", seen.value);
      }
      good(seen, what, values);
    });
  }
}

void Play::end() {
  if (here(kSecond)) process(kSecond).kill();
  actors_[kSecond].gone = actors_[kSecond].gone || victim_ != kSecond;
  for (Role role : {kThird, kPeer, kSecond, kHome}) {
    Actor& actor = actors_[role];
    if (actor.gone) continue;
    const int status = actor.process->end();
    actor.gone = true;
    if (role == victim_ && died_by(status, SIGKILL)) {
      died_ = true;
    } else {
      CHECK_MESSAGE(status == 0, actor.process->name(), " ended: ", describe_status(status));
    }
  }
}

}  // namespace cmi::test::sweep
