// What tests of imports that map the pages of a home on their machine have in common.
#pragma once

#include "system/calls.hpp"

namespace cmi::test::local_imports {

inline const Env kLocal{{"CMI_LOCAL", "on"}};
inline const Env kNetwork{{"CMI_LOCAL", "off"}};

inline Env with(Env env, const Env& more) {
  env.insert(env.end(), more.begin(), more.end());
  return env;
}

// A home, an importer that maps its pages, and one that has a cache.
struct Three {
  Cluster cluster;
  Process& home;
  Process& mapper;
  Process& cacher;
  Export exported;
  Import mapped, cached;
  explicit Three(const Env& of_mapper = {}, int32_t flags = 0)
      : home(cluster.spawn("home", with(kLocal, {{"CMI_DEAD_AFTER", "2000"}}))),
        mapper(cluster.spawn("mapper", with(kLocal, of_mapper))),
        cacher(cluster.spawn("cacher", kNetwork)),
        exported(export_segment(home, 16 * kPage, kAllRights, flags)),
        mapped(import_segment(mapper, exported)),
        cached(import_segment(cacher, exported)) {}
};

inline cmi_ofi_stats stats_of(Process& process) {
  return process.run([] { return stats(); });
}

// Nothing of the segment was cached here.
inline bool maps(Process& process) {
  const cmi_ofi_stats s = stats_of(process);
  return s.pages_fetched == 0 && s.load_misses == 0 && s.store_misses == 0;
}

}  // namespace cmi::test::local_imports
