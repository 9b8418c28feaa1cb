// What other processes of the node send over its bus, at the home's side.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/memory/home/home_core.hpp"
#include "core/memory/home/quiescing.hpp"
#include "core/memory/wire/bus_messages.hpp"

namespace cmi::memory {

// A datagram as it came, and what is to be run once the home's lock is free.
struct BusFrom {
  node::Bus::Datagram& datagram;
  Finished& done;
  node::ContextSlot slot() const { return datagram.from; }
};

// Threads: the service thread, which never waits here.
class BusHandlers {
 public:
  BusHandlers(HomeCore& home, Quiescing& quiescing) : home_(home), quiescing_(quiescing) {}
  // What is malformed, or of no known kind, is dropped.
  void on_datagram(node::Bus::Datagram datagram);

 private:
  template <class Message>
  void answer_when_done(const BusFrom& from, const Message& m) {
    from.done.push_back([this, to = from.slot(), segment = m.segment, question = m.question] {
      home_.channel.answer(to, segment, question);
    });
  }
  void scan_and_answer(const BusFrom& from, int32_t segment, uint64_t question,
                       const BusUnview* view) CMI_EXCLUDES(home_.mu);
  void on_view(const BusFrom& from, const BusView& m);
  void on_unview(const BusFrom& from, const BusUnview& m);
  void on_barrier(const BusFrom& from, const BusBarrier& m);
  void on_publish(const BusFrom& from, const BusPublish& m);
  void on_stored(const BusFrom& from, const BusStored& m);
  void on_holder(const BusFrom& from, const BusHolder& m);
  void on_look(const BusFrom& from, const BusLook& m);
  void on_in_flux(const BusFrom& from, const BusInFlux& m);
  void on_in_flux_seen(const BusFrom& from, const BusInFluxSeen& m);
  void on_file(const BusFrom& from, const BusFile& m);
  void on_token(const BusFrom& from, const BusToken& m);
  void on_shrunk(const BusFrom& from, const BusShrunk& m);
  void on_answer(const BusFrom& from, const BusAnswer& m);
  void on_quiesce(const BusFrom& from, const BusQuiesce& m);
  // For the importing side of this process: what a neighbour lost of a segment that we imported.
  void on_lost(const BusFrom& from, const BusLost& m);

  HomeCore& home_;
  Quiescing& quiescing_;
  using Asker = std::pair<node::ContextSlot, uint64_t>;  // and the number of its question
  std::vector<Asker> awaited_ CMI_GUARDED_BY(home_.mu);  // what is answered after scans
  // Pages of imports that neighbours have lost stores to, by sender and segment, until they have
  // reported all.
  std::map<std::pair<ContextId, int32_t>, std::vector<uint32_t>> lost_beside_
      CMI_GUARDED_BY(home_.mu);
};

}  // namespace cmi::memory
