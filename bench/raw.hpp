// Raw libfabric, as a program that knows its business would use it: what the library is compared
// with. Opened with the hints that the library gives, one domain and one polled endpoint each; no
// thread safety beyond what the provider has anyway. A RawEndpoint belongs to one thread.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "control.hpp"

namespace bench {

inline constexpr size_t kPingSize = 64;
inline constexpr size_t kDepth = 1024;  // operations in flight, at most

// The provider that the library would take: CMI_PROVIDER, else the first of its own list that
// works.
std::string choose_provider();
std::string libfabric_version();

struct CloseFid {
  void operator()(void* f) const { fi_close(static_cast<fid*>(f)); }
};
template <class T>
using Fid = std::unique_ptr<T, CloseFid>;
struct FreeInfo {
  void operator()(fi_info* i) const;
};

class RawEndpoint {
 public:
  // `memory` is registered for the other side; size 0: nothing is.
  // sleeping: its queue can be waited for (serve_sleeping), which costs some providers time.
  // receive_buffers: 0 for one that only fetches.
  RawEndpoint(const std::string& provider, void* memory, size_t size, bool sleeping,
              size_t receive_buffers = 16);
  ~RawEndpoint();
  RawEndpoint(const RawEndpoint&) = delete;
  RawEndpoint& operator=(const RawEndpoint&) = delete;

  void describe(RawTarget* to) const;  // for the other side
  fi_addr_t add_peer(const Blob& address);
  bool has_cas() const;
  // While it waits, after each look that finds nothing.
  void set_yields(bool yields) { yields_ = yields; }

  // Initiator. Each waits, polling, until all is done.
  void read(fi_addr_t peer, const RawTarget& target, void* to, size_t n, uint64_t offset,
            const std::function<void()>& meanwhile = {});
  void write(fi_addr_t peer, const RawTarget& target, const void* from, size_t n,
             uint64_t offset);  // delivery complete
  // `count` operations of n bytes at offsets stride apart on both sides, at most `depth` in flight.
  void read_many(fi_addr_t peer, const RawTarget& target, std::byte* to, size_t n, size_t count,
                 size_t depth);
  void write_many(fi_addr_t peer, const RawTarget& target, const std::byte* from, size_t n,
                  size_t stride, size_t count, size_t depth);
  // A read that is waited for later, or not at all.
  struct Begun {
    size_t context = 0;
    uint64_t use = 0;  // of the context, the how many-eth
  };
  Begun begin_read(fi_addr_t peer, const RawTarget& target, void* to, size_t n, uint64_t offset);
  void await_read(Begun read);
  uint64_t cas(fi_addr_t peer, const RawTarget& target, uint64_t offset, uint64_t expected,
               uint64_t desired);
  void ping(fi_addr_t peer, const std::function<void()>& meanwhile = {});
  // By a message that is answered by n bytes of the target's memory (serve_fetches), which arrive
  // where they are to be.
  void fetch(fi_addr_t peer, void* to, size_t n, uint64_t offset,
             const std::function<void()>& meanwhile = {});
  // One message of kPingSize bytes, and one that has come, if any.
  void send(fi_addr_t peer, const std::byte* data);
  bool receive(std::byte* data);

  // Target: sends each message back to `peer`. One round.
  void serve(fi_addr_t peer);
  void serve_sleeping(fi_addr_t peer, int milliseconds);
  void serve_fetches(fi_addr_t peer);  // answers one request of fetch(), if there is one

 private:
  struct Receive {
    fi_context2 context;
    std::byte data[kPingSize];
  };
  void open_queue(bool sleeping);
  void post_receive(Receive& r);
  int reap();
  int take_in(const fi_cq_entry* entries, ssize_t n);
  template <class F>
  fi_context2* post(F call);
  void wait_until(size_t in_flight);
  ssize_t write_one(fi_addr_t peer, const RawTarget& target, const void* from, size_t n,
                    uint64_t offset, fi_context2* context);

  std::unique_ptr<fi_info, FreeInfo> info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_mr> region_;
  Fid<fid_av> peers_;
  Fid<fid_cq> queue_;
  Fid<fid_ep> ep_;
  void* memory_;
  size_t size_;
  std::vector<fi_context2> contexts_;
  std::vector<uint64_t> uses_;  // of each context, that have ended
  std::vector<fi_context2*> free_;
  std::vector<Receive> receives_;
  std::vector<size_t> arrived_;  // receives with a message that nobody has looked at
  uint64_t pings_ = 0;
  bool yields_ = false;
};

// The initiator's side of the pair of processes, as the cases use it.
struct Raw {
  RawEndpoint& endpoint;
  fi_addr_t polling_peer, sleeping_peer;
  RawEndpoint& fetching;
  fi_addr_t fetched_from;
  const RawTarget &polling, &sleeping;
  std::byte* buffer;  // local memory as large as the target's, touched
  size_t size;
  const std::string& provider;
};

}  // namespace bench
