// See stale_writer.hpp. The provider moves bytes only while somebody polls the endpoint, and here
// nobody but this thread does: so a write stops where it is told to.
#include "fault/stale_writer.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/access/handles.hpp"
#include "core/memory/wire/wire.hpp"
#include "fabric/link.hpp"
#include "fabric/port.hpp"

namespace cmi::test {

namespace {

constexpr Nanos kPatience = 20 * kSecond;
constexpr uint32_t kInstance = 1;

class Deaf final : public fabric::Receiver {
 public:
  void on_message(fabric::Endpoint&, Bytes) override {}  // no notification is ever acknowledged
};

// Answers each notification at once, as who has nothing left of what it is about.
class Polite final : public fabric::Receiver {
 public:
  explicit Polite(const fabric::Identity& self) : self_(self) {}
  void answer_from(fabric::Port& listener, Bytes home_listener) {
    auto peer = listener.add(home_listener);
    if (!peer) throw std::runtime_error("a bad address");
    listener_ = &listener;
    home_ = *peer;
  }
  void on_message(fabric::Endpoint&, Bytes message) override {
    fabric::Frame notification;
    if (!fabric::decode_frame(message, &notification) ||
        notification.kind != fabric::FrameKind::kNotification)
      return;
    Reader in(notification.payload);
    in.bytes(sizeof(ContextId));  // of the home
    const auto secret = in.get<uint64_t>();
    std::byte buf[sizeof(ContextId)];
    Writer out(buf);
    out.put(self_.id.hi);
    out.put(self_.id.lo);
    if (!in.ok() || listener_ == nullptr) return;
    listener_->send(home_,
                    {fabric::FrameKind::kAck, 0, secret, notification.number, 0, out.done()});
  }

 private:
  const fabric::Identity self_;
  fabric::Port* listener_ = nullptr;
  fabric::Peer home_{};
};

// A link of this peer on a provider of its own, so that polling it moves no other.
struct Line {
  // `told_at`: of another line, where notifications are to go in place of the own listener.
  Line(const access::RsegInfo& rseg, const fabric::Identity& self, fabric::Receiver& receiver,
       fabric::Port* told_at = nullptr)
      : fabric(open(rseg)) {
    auto opened = fabric::Port::open(*fabric, receiver);
    if (!opened) throw std::runtime_error("no endpoint");
    listener = opened.take();
    fabric::Identity identity = self;
    const Bytes at = (told_at != nullptr ? told_at : listener.get())->endpoint().address();
    identity.listener.assign(at.begin(), at.end());
    link = std::make_unique<fabric::Link>(*fabric, identity, rseg.home, rseg.listeners.at(0).blob);
  }
  static std::unique_ptr<fabric::Fabric> open(const access::RsegInfo& rseg) {
    auto opened = fabric::open_fabric({rseg.listeners.at(0).provider, ""});
    if (!opened) throw std::runtime_error("no fabric");
    return opened.take();
  }
  // The key that the home answers with; false: it refused.
  bool present(const access::TokenInfo& token, fabric::RemoteKey* key) {
    std::byte buf[64];
    Writer out(buf);
    out.put(token.uid);
    out.put(kInstance);
    for (uint64_t word : {token.id, token.secret, uint64_t{1}, uint64_t{2}}) out.put(word);
    return call(memory::RequestType::kPresentToken, out.done(), [key](Reader& in) {
      key->key = in.get<uint64_t>();
      key->base = in.get<uint64_t>();
    });
  }
  bool hold_first_region(uint64_t uid) {
    std::byte buf[64];
    Writer out(buf);
    out.put(uid);
    for (uint32_t word : {kInstance, 0u, 1u, 1u}) out.put(word);
    return call(memory::RequestType::kAcquire, out.done(), [](Reader&) {});
  }
  template <class Take>
  bool call(memory::RequestType type, Bytes payload, Take take) {
    auto answer = link->call(static_cast<uint16_t>(type), payload, Deadline::in(kPatience));
    if (!answer) return false;
    Reader in(*answer);
    last_status = in.get<uint8_t>();
    take(in);
    return last_status == static_cast<int>(memory::WireStatus::kOk) && in.ok();
  }
  int announce(uint64_t uid, uint32_t pages) {
    std::byte buf[64];
    Writer out(buf);
    out.put(uid);
    for (uint32_t word : {kInstance, 1u, 0u, pages}) out.put(word);
    call(memory::RequestType::kAnnounce, out.done(), [](Reader&) {});
    return last_status;
  }

  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<fabric::Port> listener;
  std::unique_ptr<fabric::Link> link;
  int last_status = -1;
};

fabric::Identity somebody() {
  fabric::Identity self;
  self.id = random_context_id();
  self.node = {1, 2};
  self.notification_secret = random_u64();
  return self;
}

void await(const Board::Word& word) {
  const Deadline deadline = Deadline::in(kPatience);
  while (word.load() == 0) {
    if (deadline.passed()) throw std::runtime_error("the test does not go on");
    ::usleep(200);
  }
}

}  // namespace

LateReport write_late(const LateOrder& order) {
  const auto rseg = access::decode_rseg(order.handle.bytes.data());
  const auto token = access::decode_token(order.token.bytes.data());
  if (!rseg || !token) throw std::runtime_error("a bad handle");
  Board::Word* board = Board::open(order.board);
  const std::vector<uint64_t> payload(kLateBytes / 8, kLateWord);
  Deaf deaf;
  const fabric::Identity self = somebody();
  Polite polite(self);

  LateReport report;
  // A line of its own for the answers, so that giving them moves nothing of the write.
  std::unique_ptr<Line> answering;
  if (order.answers) {
    answering = std::make_unique<Line>(*rseg, self, polite);
    polite.answer_from(*answering->listener, rseg->listeners.at(0).blob);
  }
  Line line(*rseg, self, deaf, order.answers ? answering->listener.get() : nullptr);
  fabric::RemoteKey key;
  auto session = line.link->session(Deadline::in(kPatience));
  report.entered =
      session != nullptr && line.present(*token, &key) && line.hold_first_region(rseg->uid);
  if (!report.entered) return report;
  board[kEntered] = 1;
  await(board[kMaySend]);

  // In one piece, as the largest run of an honest importer.
  bool ended = false;
  session->start_write(payload.data(), kLateBytes, key, 0, [&](fabric::Cause cause) {
    ended = true;
    report.arrived = cause == fabric::Cause::kOk;
  });
  Deadline deadline = Deadline::in(kPatience);
  while (board[kHasArrived].load() == 0 && !ended && !deadline.passed()) {
    line.link->pump(*session);
    session->endpoint().poll();
  }
  board[kPaused] = 1;

  std::unique_ptr<Line> again;
  if (order.comes_back) {
    // The first hello has the old generation, and is not heard; the next one is.
    again = std::make_unique<Line>(*rseg, self, deaf);
    report.came_back = again->link->session(Deadline::in(kPatience)) != nullptr;
    board[kCameBack] = 1;
  }
  const Deadline told = Deadline::in(kPatience);
  while (order.answers && board[kMayGoOn].load() == 0 && !told.passed()) {
    if (answering->listener->endpoint().poll() + answering->listener->pump() == 0) ::usleep(200);
  }
  await(board[kMayGoOn]);
  deadline = Deadline::in(kPatience);
  while (!ended && !session->endpoint().broken() && !deadline.passed()) {
    line.link->pump(*session);
    session->endpoint().poll();
  }
  report.cut = session->endpoint().broken();
  line.link->retire(session);
  session.reset();
  return report;
}

bool hold_key(const HoldOrder& order) {
  const auto rseg = access::decode_rseg(order.handle.bytes.data());
  const auto token = access::decode_token(order.token.bytes.data());
  if (!rseg || !token) throw std::runtime_error("a bad handle");
  Board::Word* board = Board::open(order.board);
  const fabric::Identity self = somebody();
  Polite polite(self);
  Line line(*rseg, self, polite);
  polite.answer_from(*line.listener, rseg->listeners.at(0).blob);
  fabric::RemoteKey key;
  auto session = line.link->session(Deadline::in(kPatience));
  if (session == nullptr || !line.present(*token, &key)) return false;
  board[kKey] = key.key;
  board[kKeyBase] = key.base;
  board[kHeld] = 1;
  const Deadline deadline = Deadline::in(kPatience);
  while (board[kMayLetGo].load() == 0 && !deadline.passed()) {
    line.link->pump(*session);
    if (session->endpoint().poll() + line.listener->endpoint().poll() + line.listener->pump() ==
        0) {
      ::usleep(200);
    }
  }
  const bool whole = !session->endpoint().broken();
  session.reset();
  return whole;
}

int write_and_announce(const Flat& handle, const Flat& token, uint32_t pages) {
  const auto rseg = access::decode_rseg(handle.bytes.data());
  const auto granted = access::decode_token(token.bytes.data());
  if (!rseg || !granted) throw std::runtime_error("a bad handle");
  const std::vector<uint64_t> payload(size_t{pages} * kPageSize / 8, kLateWord);
  Deaf deaf;
  Line line(*rseg, somebody(), deaf);
  fabric::RemoteKey key;
  const Deadline deadline = Deadline::in(kPatience);
  auto session = line.link->session(deadline);
  if (session == nullptr || !line.present(*granted, &key)) return -1;
  const auto cause = session->write(payload.data(), payload.size() * 8, key, 0, deadline);
  if (cause != fabric::Cause::kOk) line.link->retire(session);
  session.reset();
  if (cause != fabric::Cause::kOk) return -1;
  return line.announce(rseg->uid, pages);
}

}  // namespace cmi::test
