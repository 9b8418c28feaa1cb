// A libfabric provider inside one process that plays any mode a real one may ask for and insists on
// it: memory that is not there (FI_MR_ALLOCATED), a local buffer that is not covered by a live
// registration, an offset where an address is wanted, a raw key that was not mapped or a region
// that is not bound to its endpoint fails. What goes between endpoints is the fake's net (net.hpp),
// so its faults can be injected here too. The code under test is all of src/fabric/ofi but the
// loader. For tests only. Threads: any.
#pragma once

#include <rdma/fabric.h>

#include <memory>

#include "fabric/fabric.hpp"
#include "fabric/fake/fake.hpp"
#include "fabric/ofi/info.hpp"

namespace cmi::fabric {

struct ProviderModes {
  const char* name = "played";  // what it calls itself; as "tcp" it has its queues shared
  int mr_mode = 0;      // of FI_MR_LOCAL, _VIRT_ADDR, _ALLOCATED, _PROV_KEY, _RAW, _ENDPOINT
  size_t key_size = 8;  // bytes; more than 8 with FI_MR_RAW only
  bool atomics = true;
  bool lies_about_atomics = false;  // says that it has them, and they change nothing
  bool keeps_closed_keys = false;   // as a cache of registrations does
  bool wait_fd = true;
  bool ordered = true;
  size_t inject_size = 0;  // bytes; what is larger and is to be injected fails
  bool automatic = false;  // operations toward an endpoint run though nobody polls it
  size_t max_message = size_t{1} << 30;
};

class FakeProvider {
 public:
  static std::shared_ptr<FakeProvider> make(const ProviderModes& modes);
  virtual ~FakeProvider() = default;

  // A node: the provider opened, and tried, by src/fabric/ofi. It keeps the provider alive.
  virtual Result<std::unique_ptr<Fabric>> open() = 0;
  // What libfabric would say of it: for one node, opened by open_fabric_of(). Null: no memory, or
  // no libfabric.
  virtual ofi::Info describe() = 0;
  virtual FakeNet& net() = 0;  // for faults
  // The endpoint's queue had no room for a completion: nothing can be read from it any more.
  virtual void overrun(Bytes endpoint) = 0;
};

// Stands for fi_fabric, for what describe() gave.
int open_fabric_of(fi_fabric_attr* attr, fid_fabric** out, void* context);

}  // namespace cmi::fabric
