// The scenes of a play of the fault sweep.
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include "core/base/clock.hpp"
#include "fault/sweep_play.hpp"

namespace cmi::test::sweep {

void Play::work() {
  // Whole pages ahead of the reader, and every region held by both.
  for (Role role : {kPeer, kThird}) {
    if (views_[role] == 0) continue;
    let(role, [&](Process& p) {
      const Access read = p.run(
          [](uint64_t at) {
            Access access;
            for (uint64_t i = 0; i < kPages && access.cause() == Fault::kNone; ++i) {
              access = load64(at + i * kPage);
            }
            return access;
          },
          views_[role]);
      good(read, "loads in a row", {0});
    });
  }
  put_and_see(kThird, kByThird, 10, "the third's stores");
  put_and_see(kPeer, kByPeer, 20, "the peer's stores");
  put_and_see(kPeer, kByPeer, 21, "the peer's stores to what others have");
  // Pages that change in every byte.
  if (views_[kPeer] != 0) {
    let(kPeer, [&](Process& p) {
      const Access written = p.run(
          [](uint64_t at) {
            Access access;
            for (uint64_t i = 0; i < kRunPages * kPage && access.cause() == Fault::kNone; i += 8) {
              access = store64(at + i, 0x5555555555555555);
            }
            return access;
          },
          views_[kPeer] + kRun * kPage);
      if (good(written, "a run")) good(wmb(p), "the barrier after a run");
    });
    see(kRun + kRunPages - 1, {0, 0x5555555555555555}, "what was written as a run");
  }
  uint64_t counted = 0, tried = 0;
  const auto swap = [&](Role role, uint64_t expected) {
    if (views_[role] == 0) return;
    let(role, [&](Process& p) {
      ++tried;
      const Swap made = atm_cas(p, views_[role] + kSwapped * kPage, expected, expected + 1);
      if (good(Access{0, made.fault}, "a swap") && good(made.answer, "a swap"))
        counted += made.swapped;
    });
  };
  for (Role role : {kPeer, kThird, kPeer, kThird}) {
    if (views_[role] == 0) continue;
    Access seen;
    if (!let(role, [&](Process& p) { seen = load(p, views_[role] + kSwapped * kPage); })) continue;
    if (good(seen, "the counter")) swap(role, seen.value);
  }
  // The page has gone since the last swap there, after which it was missed: the answer brings it.
  swap(kPeer, counted);
  for (Role role : {kHome, kThird}) {
    if (views_[role] == 0) continue;
    let(role, [&](Process& p) {
      const Access seen = load(p, views_[role] + kSwapped * kPage);
      if (!good(seen, "the counter")) return;
      CHECK(seen.value >= counted);
      CHECK(seen.value <= tried);
    });
  }
  put_and_see(kHome, kByHome, 30, "the home's stores");
  put_and_see(kSecond, kByHome, 31, "stores of the home's second process");
  die_untidily();
}

void Play::die_untidily() {
  put_and_see(kThird, kByThird, 11, "the third's stores at the end");
  if (victim_ == kThird || views_[kThird] == 0 || !here(kThird)) return;
  process(kThird).start(
      [](uint64_t at) {
        for (uint64_t n = 0; !called_back(); ++n) store64(at + n % 16 * 8, n);
      },
      views_[kThird] + kInFlux * kPage);
  // It has begun as soon as its stores are seen at home.
  if (views_[kHome] != 0) {
    let(kHome, [&](Process& p) { load_until(p, views_[kHome] + kInFlux * kPage + 8, 1, 1); });
  }
  process(kThird).kill();
  actors_[kThird].gone = true;
  views_[kThird] = 0;
  put_and_see(kHome, kByHome, 32, "the home's stores after a death");
  // A mapped page that was stored to again just before may be in flux all the same (local.md).
  if (!has_.mapped && !mapped()) see(kByThird, words_[kByThird], "what the dead had flushed");
  // Whatever is in flux is given back, and is as good as the rest.
  if (views_[kHome] == 0) return;
  let(kHome, [&](Process& p) {
    const Recovery lost = seg_check(p, exported_.seg, views_[kHome], kPages * kPage);
    if (!good(lost.answer, "CMI_SEG_CHECK") || lost.size == 0) return;
    good(seg_reco(p, exported_.seg, views_[kHome], kPages * kPage), "CMI_SEG_RECO");
  });
  lack_.cause = has_.unanswered ? lack_.cause : Fault::kNone;
  put_and_see(kHome, kByHome, 33, "the home's stores after a recovery");
}

void Play::pause() {
  if (!here(kHome) || !here(kPeer) || views_[kPeer] == 0) return;
  process(kHome).stop();
  let(kPeer, [&](Process& p) {
    const Answer asked = p.run([] {
      cmi_ctl_cfg cfg{};
      cfg.ctl_cfg_cmap_reqid = 1;
      const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_NODE_CMAP_GET, &cfg);
      return answer(result, result != 0);
    });
    good(asked, "CMI_CTL_NODE_CMAP_GET");
    const Deadline soon = Deadline::in(10 * cmi::kSecond);
    while (next_event(p) != CMI_EVENT_CMAP && !soon.passed()) ::usleep(1000);
    CHECK_FALSE(soon.passed());
    while (passed(kPeer, "lease_expired") == 0 && !soon.passed()) ::usleep(1000);
    CHECK_FALSE(soon.passed());
  });
  process(kHome).signal(SIGCONT);
  // Nothing is lost by it. An access that came too soon would be told to try again.
  let(kPeer, [&](Process& p) {
    const Deadline soon = Deadline::in(10 * cmi::kSecond);
    Access seen;
    do seen = load(p, views_[kPeer] + kByPeer * kPage);
    while (seen.cause() == CMI_ERROR_TRANSIENT && !soon.passed());
    good(seen, "a load after the home was silent", words_[kByPeer]);
  });
  put_and_see(kPeer, kByPeer, 22, "the peer's stores after the home was silent");
  put_and_see(kHome, kByHome, 34, "the home's stores after it was silent");
}

void Play::flood() {
  constexpr uint64_t kMany = 1536;
  constexpr uint64_t kStripes = 0x0001000100010001;
  Export many;
  let(kHome, [&](Process& p) {
    many = export_segment(p, kMany * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
  });
  let(kPeer, [&](Process& p) {
    const Import import = import_segment(p, many);
    const Answer flushed = p.run(
        [](uint64_t at) {
          auto* words = reinterpret_cast<volatile uint64_t*>(at);
          // Cached first: the stores do not wait for the home then.
          for (uint64_t i = 0; i < kMany; ++i) (void)words[i * kPage / 8];
          for (uint64_t i = 0; i < kMany * kPage / 8; ++i) words[i] = kStripes;
          const int result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
          return answer(result, result != 0);
        },
        import.at);
    good(flushed, "the barrier after a flood");
  });
  let(kHome, [&](Process& p) {
    const uint64_t wrong = p.run(
        [](uint64_t at) {
          auto* words = reinterpret_cast<volatile uint64_t*>(at);
          uint64_t count = 0;
          for (uint64_t i = 0; i < kMany * kPage / 8; ++i) count += words[i] != kStripes;
          return count;
        },
        many.at);
    CHECK(wrong == 0);
    good(seg_rm(p, many.seg), "seg_rm of what was flooded");
  });
}

void Play::resize() {
  Export grows;
  let(kHome, [&](Process& p) {
    const Answer made = seg_get(p, 8 * kPage, CMI_SEG_EXTENSIBLE);
    if (!good(made, "seg_get of an extensible segment")) return;
    grows.seg = made.seg();
    grows.handle = seg_exp(p, grows.seg);
    good(seg_brk(p, grows.seg, 4 * kPage), "CMI_SEG_BRK up");
    grows.token = tok_new(p, grows.seg, kAllRights);
  });
  if (!grows.token.ok()) return;
  uint64_t view = 0;
  let(kPeer, [&](Process& p) {
    const Answer imported = seg_imp(p, grows.handle);
    if (!good(imported, "seg_imp") ||
        !good(set_token(p, imported.seg(), grows.token), "CMI_SEG_TOKEN")) {
      return;
    }
    const Answer attached = seg_at(p, imported.seg());
    if (!good(attached, "seg_at of an import")) return;
    view = attached.at();
    good(load(p, view + 3 * kPage), "a load before the break", {0});
  });
  bool shrunk = false;
  let(kHome, [&](Process& p) { shrunk = good(seg_brk(p, grows.seg, kPage), "CMI_SEG_BRK down"); });
  if (view != 0 && shrunk) {
    let(kPeer, [&](Process& p) {
      const Access past = load(p, view + 3 * kPage);
      if (past.cause() != CMI_ERROR_SEG_BRK) {
        good(past, "a load past the break", {});
        CHECK(dying());
      }
    });
  }
  let(kHome, [&](Process& p) { good(seg_rm(p, grows.seg), "seg_rm"); });
  let(kHome, [&](Process& p) {
    good(reserve(p, CMI_CTL_MEM_RESERVE, 4 * kPage, 0), "CMI_CTL_MEM_RESERVE");
    good(reserve(p, CMI_CTL_MEM_RESERVE, 8 * kPage, 0), "a larger CMI_CTL_MEM_RESERVE");
    const Answer made = seg_get(p, 6 * kPage);
    if (good(made, "seg_get in a reservation")) good(seg_rm(p, made.seg()), "seg_rm");
    good(reserve(p, CMI_CTL_MEM_RESERVE_DEL, 0, 0), "CMI_CTL_MEM_RESERVE_DEL");
  });
}

void Play::go_through() {
  Export shared;
  let(kHome, [&](Process& p) {
    const Answer made = seg_get(p, kPage);
    if (!good(made, "seg_get of a write-through segment")) return;
    shared.seg = made.seg();
    shared.handle = seg_exp(p, shared.seg, CMI_SEG_WRITE_THROUGH);
    if (shared.handle.ok()) shared.token = tok_new(p, shared.seg, kAllRights);
  });
  if (!shared.token.ok()) return;  // where no instruction can be executed in its place
  let(kPeer, [&](Process& p) {
    const Answer imported = seg_imp(p, shared.handle);
    if (!good(imported, "seg_imp of a write-through segment") ||
        !good(set_token(p, imported.seg(), shared.token), "CMI_SEG_TOKEN")) {
      return;
    }
    const Answer attached = seg_at(p, imported.seg());
    if (!good(attached, "seg_at of a write-through import")) return;
    if (good(store(p, attached.at(), 5), "a store that goes through", {})) {
      good(load(p, attached.at()), "a load that goes through", {5});
    }
  });
  let(kHome, [&](Process& p) { good(seg_rm(p, shared.seg), "seg_rm of it"); });
}

void Play::adopt() {
  let(kHome, [&](Process& p) {
    const Answer mapped = p.run([] {
      void* at =
          ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) return answer(0, true);
      *static_cast<uint64_t*>(at) = 7;
      return answer(reinterpret_cast<int64_t>(at), false);
    });
    REQUIRE(mapped.ok());
    const Answer made = p.run(
        [](uint64_t at) {
          const cmi_seg seg = CMIFN(ctxt(), 11, seg_getva)(ctxt(), reinterpret_cast<void*>(at),
                                                           4 * kPage, CMI_SEG_CLIENT_CONSIST);
          return answer(seg, seg == CMI_SEG_INVALID);
        },
        mapped.at());
    if (!good(made, "seg_getva")) return;
    good(load(p, mapped.at()), "a load of adopted memory", {7});
    good(seg_rm(p, made.seg()), "seg_rm of adopted memory");
    good(seg_dt(p, made.seg(), mapped.at()), "seg_dt of adopted memory");
    good(load(p, mapped.at()), "a load of memory that was given back", {7});
  });
}

void Play::withdraw() {
  if (!exported_.token.ok()) return;
  let(kHome, [&](Process& p) { good(tok_del(p, second_token_), "tok_del"); });
  if (here(kHome) && views_[kPeer] != 0) {
    let(kPeer, [&](Process& p) {
      const int cause = load(p, views_[kPeer]).cause();
      CHECK((cause == CMI_ERROR_TOKEN || dying()));
      good(seg_dt(p, segments_[kPeer], views_[kPeer]), "seg_dt of an import");
    });
  }
  if (second_ != 0) {
    let(kSecond, [&](Process& p) { good(seg_dt(p, exported_.seg, second_), "seg_dt"); });
  }
  let(kHome, [&](Process& p) {
    good(seg_rm(p, exported_.seg), "seg_rm");
    good(seg_dt(p, exported_.seg, exported_.at), "seg_dt of a removed segment");
  });
}

}  // namespace cmi::test::sweep
