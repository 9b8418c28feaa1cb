// evt_get, evt_ret and the descriptor, in one process.
#include <cmi/ofi/cmi_impl.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "system/counting_heap.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::events_test {

namespace {

bool readable(int fd, int milliseconds) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, milliseconds) == 1;
}

cmi_event* await_event(cmi_ctxt* ctxt) {
  return readable(cmi_ofi_evt_fd(ctxt), 20000) ? CALL(evt_get) : nullptr;
}

int request_map(cmi_ctxt* ctxt, uint64_t id) {
  cmi_ctl_cfg cfg{};
  cfg.ctl_cfg_cmap_reqid = id;
  return CALL(cmi_ctl, CMI_CTL_NODE_CMAP_GET, &cfg);
}

}  // namespace

TEST_SUITE_BEGIN("events");

TEST_CASE_FIXTURE(Process, "the_descriptor_is_readable_while_an_event_waits") {
  ini();
  const int fd = cmi_ofi_evt_fd(ctxt);
  REQUIRE(fd >= 0);
  CHECK_FALSE(readable(fd, 0));
  CHECK(CALL(evt_get) == nullptr);
  CHECK(error() == CMI_ERR_NONE);
  for (uint64_t id : {1, 2}) REQUIRE(request_map(ctxt, id) == 0);
  cmi_event* first = await_event(ctxt);
  cmi_event* second = await_event(ctxt);
  REQUIRE(first != nullptr);
  REQUIRE(second != nullptr);
  CHECK(first != second);
  CHECK_FALSE(readable(fd, 0));
  CHECK(CALL(evt_get) == nullptr);
  // Both stay as they are until they are returned, in any order.
  CHECK(first->type == CMI_EVENT_CMAP);
  CHECK(first->ctxt == ctxt);
  CHECK(first->cmap.einfo_reqid == 1);
  CHECK(first->info.cmap.einfo_nnodes == 0);
  CHECK(second->cmap.einfo_reqid == 2);
  CMIFN(ctxt, 11, evt_ret)(second, CMI_EVENT_RET_DONE);
  CHECK(first->cmap.einfo_reqid == 1);
  CMIFN(ctxt, 11, evt_ret)(first, CMI_EVENT_RET_FAILED);  // ends nobody
}

TEST_CASE_FIXTURE(Process, "an_event_that_is_foreign_or_returned_twice_is_ignored") {
  ini();
  REQUIRE(request_map(ctxt, 1) == 0);
  cmi_event* event = await_event(ctxt);
  REQUIRE(event != nullptr);
  cmi_event foreign = *event;
  foreign.type = CMI_EVENT_QUIESCE;
  CMIFN(ctxt, 11, evt_ret)(&foreign, CMI_EVENT_RET_FAILED);
  CMIFN(ctxt, 11, evt_ret)(nullptr, CMI_EVENT_RET_FAILED);
  // By a thread that is not registered as well.
  cmi_error told = CMI_ERR_NONE;
  std::thread([&] {
    CMIFN(ctxt, 11, evt_ret)(event, CMI_EVENT_RET_DONE);
    told = error();
  }).join();
  CHECK(told == CMI_ERR_INIT);
  CHECK(event->cmap.einfo_reqid == 1);
  CMIFN(ctxt, 11, evt_ret)(event, CMI_EVENT_RET_DONE);
  CMIFN(ctxt, 11, evt_ret)(event, CMI_EVENT_RET_DONE);
}

TEST_CASE_FIXTURE(Process, "events_that_the_client_keeps_go_with_the_context") {
  CountingHeap heap;
  cmi_cbs callbacks = heap.callbacks();
  ini(CMI_VERNO, &callbacks);
  for (uint64_t id = 1; id <= 3; ++id) REQUIRE(request_map(ctxt, id) == 0);
  cmi_event* const returned = await_event(ctxt);
  REQUIRE(returned != nullptr);
  REQUIRE(await_event(ctxt) != nullptr);  // kept
  const size_t blocks = heap.blocks();
  CMIFN(ctxt, 11, evt_ret)(returned, CMI_EVENT_RET_DONE);
  CHECK(heap.blocks() == blocks - 1);
  end();
  CHECK(heap.blocks() == 0);
  CHECK(heap.strays() == 0);
}

TEST_CASE_FIXTURE(Process, "requests_for_maps_that_nobody_fetches_are_limited_and_answered") {
  ini();
  uint64_t taken = 0;
  while (taken < 10000 && request_map(ctxt, taken + 1) == 0) ++taken;
  CHECK(error() == CMI_ERR_NOMEM);
  CHECK(taken >= 1024);
  REQUIRE(taken < 10000);
  std::vector<bool> told(taken + 1, false);
  for (uint64_t i = 0; i < taken; ++i) {
    cmi_event* event = await_event(ctxt);
    REQUIRE(event != nullptr);
    REQUIRE(event->cmap.einfo_reqid <= taken);
    CHECK_FALSE(told[event->cmap.einfo_reqid]);
    told[event->cmap.einfo_reqid] = true;
    CMIFN(ctxt, 11, evt_ret)(event, CMI_EVENT_RET_DONE);
  }
  CHECK(request_map(ctxt, 1) == 0);
}

TEST_CASE_FIXTURE(Process, "threads_share_the_events_of_their_context") {
  ini();
  constexpr uint64_t kEach = 50;
  constexpr int kThreads = 4;
  std::atomic<uint64_t> sum{0}, taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CHECK(CALL(ini_th) == 0);
      for (uint64_t i = 1; i <= kEach; ++i) {
        CHECK(request_map(ctxt, static_cast<uint64_t>(t) * kEach + i) == 0);
      }
      while (taken.load() < kThreads * kEach) {
        if (!readable(cmi_ofi_evt_fd(ctxt), 20)) continue;
        cmi_event* event = CALL(evt_get);
        if (event == nullptr) continue;
        sum += event->cmap.einfo_reqid;
        CMIFN(ctxt, 11, evt_ret)(event, CMI_EVENT_RET_DONE);
        ++taken;
      }
      CHECK(CALL(fini) == 0);
    });
  }
  for (auto& t : threads) t.join();
  CHECK(sum == kThreads * kEach * (kThreads * kEach + 1) / 2);
}

TEST_CASE_FIXTURE(Process, "cmi_ofi_evt_fd_needs_a_registered_thread_and_the_context") {
  ini();
  CHECK_FAILS(cmi_ofi_evt_fd(nullptr), -1, CMI_ERR_INVAL);
  in_thread([&] { CHECK_FAILS(cmi_ofi_evt_fd(ctxt), -1, CMI_ERR_INIT); });
}

TEST_CASE_FIXTURE(Process, "a_bad_operand_of_the_event_commands_is_inval") {
  ini();
  cmi_ctl_cfg cfg{};
  CHECK_FAILS(CALL(cmi_ctl, CMI_CTL_NODE_CMAP_GET, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(cmi_ctl, CMI_CTL_NODE_CMAP_GET, &cfg), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(cmi_ctl, CMI_CTL_RECONF_TOUT, nullptr), -1, CMI_ERR_INVAL);
  CHECK_FAILS(CALL(cmi_ctl, CMI_CTL_RECONF_TOUT, &cfg), -1, CMI_ERR_INVAL);
  cfg.ctl_cfg_rcfg_tout = 1;
  CHECK(CALL(cmi_ctl, CMI_CTL_RECONF_TOUT, &cfg) == 0);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::events_test
