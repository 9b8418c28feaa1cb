// What homes notify us of: drop these pages, this token is gone, this segment is gone. Runs in
// whatever thread polls the listener, the service thread mostly, and never waits: a publisher
// somewhere is waiting for our answer.
#pragma once

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/page_drops.hpp"
#include "core/memory/wire/notifications.hpp"

namespace cmi::memory {

class Notifications {
 public:
  explicit Notifications(ImporterCore& core) : core_(core) {}

  // What is malformed, or of no known type, is dropped: no honest home has sent it.
  void on_notification(const ContextId& home, uint64_t secret, uint64_t number, uint16_t type,
                       Reader in, const fabric::DirectAck& direct_ack = {});
  // Those that waited for something which is over are acknowledged.
  void answer_pending();

 private:
  // Where the acknowledgement of a notification goes, and the import that it is about, if any.
  struct Notified {
    const ContextId& home;
    uint64_t secret, number;
    const fabric::DirectAck& direct_ack;
    std::shared_ptr<Import> import;
  };
  template <class Message, auto handler>
  static void about_import(Notifications& self, const Notified& from, const Message& m);
  void acknowledge(const Notified& n, Bytes release = {});
  void acknowledge_directly(const Notified& n, Bytes release = {});
  void answer_when_key_idle(const Notified& n);
  void on_goodbye(const Notified& n, const HomeNotification& m);
  void on_alive(const Notified& n, const HomeNotification& m);
  void on_invalidate(const Notified& n, const InvalidateNotification& m);
  bool drop_listed(const std::shared_ptr<Import>& imp, const InvalidateNotification& m,
                   Invalidation* by);
  bool apply_updates(const std::shared_ptr<Import>& imp, const InvalidateNotification& m,
                     Invalidation* by);
  static void count_costs(Import& imp, const InvalidateNotification& m, bool useless);
  void on_revoke(const Notified& n, const RevokeNotification& m);
  void on_removed(const Notified& n, const RemovedNotification& m);
  void on_in_flux(const Notified& n, const InFluxNotification& m);
  void on_break_moved(const Notified& n, const BreakNotification& m);
  void on_quiesce_round(const Notified& n, const QuiesceNotification& m, bool on);

  ImporterCore& core_;
};

}  // namespace cmi::memory
