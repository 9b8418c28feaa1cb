// An initiator that is bound by nothing: uses libfabric directly, with whatever key and address it
// is told, knows nothing of libcmi. System tests use it to see what a key really opens.
//
//   rogue PROVIDER ADDRESS-HEX KEY BASE OFFSET LEN read|write
//
// PROVIDER as fi_info -p takes it; KEY, BASE, OFFSET and LEN in C notation. One operation, at most
// five seconds. Prints one line and exits with 0 where the operation succeeded ("got HEX",
// "wrote"), 1 where it was refused or cut off ("refused WHY"), 2 where nothing ended it
// ("timeout"), 3 for a wrong call or a machine without the provider.
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr double kPatience = 5.0;  // seconds
constexpr size_t kMostBytes = 1 << 20;

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

[[noreturn]] void unusable(const char* what) {
  std::fprintf(stderr, "rogue: %s\n", what);
  std::exit(3);
}

struct Libfabric {
  decltype(&fi_getinfo) getinfo;
  decltype(&fi_dupinfo) dupinfo;
  decltype(&fi_fabric) fabric;
  decltype(&fi_strerror) strerror;
};

// Two ends of rxm only talk with buffers of one size, and the library has its own; with the rest a
// verbs device has room for an endpoint.
void set_unless_set() {
  setenv("FI_OFI_RXM_BUFFER_SIZE", "4096", 0);
  setenv("FI_OFI_RXM_USE_SRX", "1", 0);
  setenv("FI_OFI_RXM_MSG_RX_SIZE", "128", 0);
  setenv("FI_UNIVERSE_SIZE", "16", 0);
}

Libfabric load() {
  set_unless_set();
  void* so = dlopen("libfabric.so.1", RTLD_NOW);
  if (so == nullptr) unusable(dlerror());
  const auto find = [so](const char* name, auto& to) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(so, name));
    if (to == nullptr) unusable(name);
  };
  Libfabric l{};
  find("fi_getinfo", l.getinfo);
  find("fi_dupinfo", l.dupinfo);
  find("fi_fabric", l.fabric);
  find("fi_strerror", l.strerror);
  return l;
}

std::vector<unsigned char> from_hex(const std::string& text) {
  std::vector<unsigned char> out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<unsigned char>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return out;
}

void must(int rc, const char* what, const Libfabric& lib) {
  if (rc != 0) unusable((std::string(what) + ": " + lib.strerror(-rc)).c_str());
}

// The entry whose name is just `provider`, with the source that the tests' nodes have.
fi_info* choose(const Libfabric& lib, const char* provider) {
  const char* asked = std::getenv("CMI_TEST_ADDRESS");
  const char* source = asked != nullptr ? asked : "127.0.0.1";
  for (int mr_mode : {0, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY}) {
    fi_info* hints = lib.dupinfo(nullptr);
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = mr_mode;
    hints->fabric_attr->prov_name = strdup(provider);
    fi_info* list = nullptr;
    if (lib.getinfo(FI_VERSION(1, 17), source, nullptr, FI_SOURCE, hints, &list) != 0) continue;
    for (fi_info* i = list; i != nullptr; i = i->next) {
      if (std::strcmp(i->fabric_attr->prov_name, provider) == 0) return i;
    }
  }
  unusable("no such provider");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) unusable("PROVIDER ADDRESS-HEX KEY BASE OFFSET LEN read|write");
  const std::vector<unsigned char> address = from_hex(argv[2]);
  const uint64_t key = std::strtoull(argv[3], nullptr, 0);
  const uint64_t at = std::strtoull(argv[4], nullptr, 0) + std::strtoull(argv[5], nullptr, 0);
  const size_t len = std::strtoull(argv[6], nullptr, 0);
  const bool write = std::strcmp(argv[7], "write") == 0;
  if (address.empty() || len == 0 || len > kMostBytes) unusable("a bad address or length");

  const Libfabric lib = load();
  fi_info* info = choose(lib, argv[1]);
  fid_fabric* fabric;
  fid_domain* domain;
  fid_av* av;
  fid_cq* cq;
  fid_ep* ep;
  must(lib.fabric(info->fabric_attr, &fabric, nullptr), "fabric", lib);
  must(fi_domain(fabric, info, &domain, nullptr), "domain", lib);
  fi_av_attr av_attr = {};
  must(fi_av_open(domain, &av_attr, &av, nullptr), "address vector", lib);
  fi_cq_attr cq_attr = {};
  cq_attr.format = FI_CQ_FORMAT_MSG;
  cq_attr.wait_obj = FI_WAIT_NONE;
  must(fi_cq_open(domain, &cq_attr, &cq, nullptr), "completion queue", lib);
  must(fi_endpoint(domain, info, &ep, nullptr), "endpoint", lib);
  must(fi_ep_bind(ep, &av->fid, 0), "bind", lib);
  must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind", lib);
  must(fi_enable(ep), "enable", lib);
  fi_addr_t peer;
  if (fi_av_insert(av, address.data(), 1, &peer, 0, nullptr) != 1) unusable("the address");

  // Longer than any word a test would expect, and telling where it came from.
  std::vector<unsigned char> buffer(len, 0xbd);
  fi_context2 context = {};
  iovec local{buffer.data(), len};
  fi_rma_iov remote{at, len, key};
  fi_msg_rma msg = {};
  msg.msg_iov = &local;
  msg.iov_count = 1;
  msg.addr = peer;
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  msg.context = &context;

  const double end = now() + kPatience;
  fi_cq_msg_entry entry;
  ssize_t rc;
  do {
    rc = write ? fi_writemsg(ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE)
               : fi_readmsg(ep, &msg, FI_COMPLETION);
    if (rc == -FI_EAGAIN) fi_cq_read(cq, &entry, 0);
  } while (rc == -FI_EAGAIN && now() < end);
  int status = 2;
  if (rc == -FI_EAGAIN) {
    std::puts("timeout");
  } else if (rc != 0) {
    std::printf("refused %s\n", lib.strerror(static_cast<int>(-rc)));
    status = 1;
  } else {
    do {
      rc = fi_cq_read(cq, &entry, 1);
    } while (rc == -FI_EAGAIN && now() < end);
    if (rc == 1 && write) {
      std::puts("wrote");
      status = 0;
    } else if (rc == 1) {
      std::printf("got ");
      for (unsigned char b : buffer) std::printf("%02x", b);
      std::puts("");
      status = 0;
    } else if (rc == -FI_EAVAIL) {
      fi_cq_err_entry error = {};
      fi_cq_readerr(cq, &error, 0);
      std::printf("refused %s\n", lib.strerror(error.err));
      status = 1;
    } else {
      std::puts("timeout");
    }
  }
  // Ends with everything open: a rogue does not say goodbye, and an orderly close could wait.
  std::fflush(stdout);
  _Exit(status);
}
