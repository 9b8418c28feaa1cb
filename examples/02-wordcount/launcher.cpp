// PMIx: put, commit, fence and get.
#include "launcher.hpp"

#include "failure.hpp"

#ifdef WORDCOUNT_PMIX

#include <pmix.h>

#include <cstring>

namespace wordcount {
namespace {

void must(pmix_status_t status, const char* what) {
  if (status != PMIX_SUCCESS) fail("PMIx: {}: {}", what, PMIx_Error_string(status));
}

pmix_proc_t process_of(const pmix_proc_t& self, pmix_rank_t rank) {
  pmix_proc_t process;
  PMIX_PROC_CONSTRUCT(&process);
  PMIX_LOAD_PROCID(&process, self.nspace, rank);
  return process;
}

}  // namespace

struct Launcher::Job {
  pmix_proc_t self = {};
  unsigned size = 0;
};

Launcher::Launcher() : job_(std::make_unique<Job>()) {
  const pmix_status_t status = PMIx_Init(&job_->self, nullptr, 0);
  if (status != PMIX_SUCCESS) {
    fail("no launcher with PMIx has started this process (mpirun, prterun, srun --mpi=pmix): {}",
         PMIx_Error_string(status));
  }
  const pmix_proc_t all = process_of(job_->self, PMIX_RANK_WILDCARD);
  pmix_value_t* value = nullptr;
  must(PMIx_Get(&all, PMIX_JOB_SIZE, nullptr, 0, &value), "the size of the job");
  if (value->type != PMIX_UINT32) fail("PMIx: the size of the job is no number");
  job_->size = value->data.uint32;
  PMIX_VALUE_RELEASE(value);
}

Launcher::~Launcher() { PMIx_Finalize(nullptr, 0); }

unsigned Launcher::rank() const { return job_->self.rank; }
unsigned Launcher::size() const { return job_->size; }

void Launcher::leave(const std::string& key, std::string_view bytes) {
  pmix_value_t value;
  PMIX_VALUE_CONSTRUCT(&value);
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = const_cast<char*>(bytes.data());  // copied by the call
  value.data.bo.size = bytes.size();
  must(PMIx_Put(PMIX_GLOBAL, key.c_str(), &value), "put");
}

std::string Launcher::take(unsigned rank, const std::string& key) {
  const pmix_proc_t from = process_of(job_->self, rank);
  pmix_value_t* value = nullptr;
  must(PMIx_Get(&from, key.c_str(), nullptr, 0, &value), key.c_str());
  if (value->type != PMIX_BYTE_OBJECT) fail("PMIx: {} is not what process {} left", key, rank);
  std::string bytes(value->data.bo.bytes, value->data.bo.size);
  PMIX_VALUE_RELEASE(value);
  return bytes;
}

void Launcher::meet() {
  must(PMIx_Commit(), "commit");
  bool collect = true;
  pmix_info_t info;
  PMIX_INFO_CONSTRUCT(&info);
  PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
  must(PMIx_Fence(nullptr, 0, &info, 1), "fence");
  PMIX_INFO_DESTRUCT(&info);
}

}  // namespace wordcount

#else

namespace wordcount {

struct Launcher::Job {};

Launcher::Launcher() { fail("--pmix: this program was built without PMIx (libpmix-dev)"); }
Launcher::~Launcher() = default;
unsigned Launcher::rank() const { return 0; }
unsigned Launcher::size() const { return 0; }
void Launcher::leave(const std::string&, std::string_view) {}
std::string Launcher::take(unsigned, const std::string&) { return {}; }
void Launcher::meet() {}

}  // namespace wordcount

#endif
