// How each lie is made. One thread; the endpoints of a false home are never closed before it ends.
#include "fault/lying_home.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "core/access/handles.hpp"
#include "core/memory/wire/wire.hpp"
#include "fabric/fabric.hpp"
#include "fabric/frame.hpp"

namespace cmi::test {

namespace {

using fabric::Frame;
using fabric::FrameKind;
using memory::NotificationType;
using memory::RequestType;
using memory::WireStatus;
using Buffer = std::vector<std::byte>;

constexpr size_t kMostBuffers = 64;

class FalseHome final : public fabric::Receiver {
 public:
  FalseHome(const access::RsegInfo& honest, size_t size) : memory_(size / 8, 0x77) {
    auto opened = fabric::open_fabric({honest.listeners.at(0).provider, ""});
    if (!opened) throw std::runtime_error("no fabric");
    fabric_ = opened.take();
    auto listener = fabric_->open_endpoint(*this);
    if (!listener) throw std::runtime_error("no endpoint");
    listener_ = listener.take();
    auto region = fabric_->register_memory(memory_.data(), size, fabric::kRead | fabric::kWrite,
                                           random_u64());
    if (!region) throw std::runtime_error("no region");
    region_ = region.take();
  }

  FalseSegment another(const std::string& provider) {
    access::RsegInfo rseg;
    rseg.uid = uid_ = random_u64();
    rseg.home_seg = 1;
    rseg.size = memory_.size() * 8;
    // By turns, the first one consistent.
    rseg.flags = flags_ =
        flags_ == CMI_SEG_CLIENT_CONSIST ? CMI_SEG_CLIENT_INCONSIST : CMI_SEG_CLIENT_CONSIST;
    rseg.home_node = {3, 4};
    rseg.home = id_;
    const Bytes address = listener_->address();
    rseg.listeners.push_back({provider, {address.begin(), address.end()}});
    access::TokenInfo token;
    token.uid = uid_;
    token.id = random_u64();
    token.secret = random_u64();
    token.rights = fabric::kRead | fabric::kWrite | fabric::kAtomic;
    token.any_node = true;
    token.home = id_;
    token.keys.push_back({provider, region_->key()});
    FalseSegment made;
    made.handle.size = access::kRsegSize;
    made.token.size = access::kTokenSize;
    const auto span = [](Flat& flat) {
      return std::span(reinterpret_cast<std::byte*>(flat.bytes.data()), flat.size);
    };
    if (!ok(access::encode_rseg(rseg, span(made.handle))) ||
        !ok(access::encode_token(token, span(made.token)))) {
      throw std::runtime_error("the handle cannot be made");
    }
    return made;
  }

  FalseReport serve(HomeLie lie, uint64_t seed, const Board::Word& lying,
                    const access::RsegInfo& honest) {
    random_.seed(seed);
    honest_ = &honest;
    lie_ = lie;
    report_ = {};
    while (!called_back()) {
      lying_ = lying.load() != 0;
      pump();
      while (!arrived_.empty()) {
        const Arrived request = std::move(arrived_.front());
        arrived_.pop_front();
        request.hello ? welcome(request.payload) : answer(request);
      }
      if (lying_ && buffers_.size() < kMostBuffers && one_in(20)) say_something();
      ::usleep(20);
    }
    return report_;
  }

  // Only taken down here: what it is answered with may need new endpoints.
  void on_message(fabric::Endpoint&, Bytes message) override {
    Frame f;
    if (!fabric::decode_frame(message, &f)) return;
    if (f.kind != FrameKind::kHello && f.kind != FrameKind::kRequest) return;
    arrived_.push_back({f.kind == FrameKind::kHello, f.type, f.number,
                        Buffer(f.payload.begin(), f.payload.end())});
  }

 private:
  struct Arrived {
    bool hello;
    uint16_t type;
    uint64_t number;
    Buffer payload;
  };
  struct SendBuffer {
    fabric::Op op;
    Buffer bytes;
  };

  // ---- Sending

  void pump() {
    listener_->poll();
    for (auto& e : serving_) e->poll();
    while (!buffers_.empty() && buffers_.front()->op.done()) buffers_.pop_front();
    if (buffers_.size() >= kMostBuffers) stuck_.splice_from(buffers_);
  }
  void send(fabric::Endpoint& from, fabric::Peer to, const Frame& f) {
    Buffer bytes(fabric::frame_size(f));
    Writer out(bytes);
    fabric::encode_frame(f, out);
    send(from, to, std::move(bytes));
  }
  void send(fabric::Endpoint& from, fabric::Peer to, Buffer bytes) {
    if (bytes.empty()) bytes.resize(1);
    buffers_.push_back(std::make_unique<SendBuffer>());
    SendBuffer& buffer = *buffers_.back();
    buffer.bytes = std::move(bytes);
    const Deadline deadline = Deadline::in(20 * kMilli);
    for (;;) {
      const auto post = from.send(buffer.op, to, buffer.bytes.data(), buffer.bytes.size());
      if (post == fabric::Post::kPosted) return;
      listener_->poll();
      for (auto& e : serving_) e->poll();
      if (post == fabric::Post::kFailed || deadline.passed()) {
        buffers_.pop_back();
        return;
      }
    }
  }

  // ---- What an honest home would say

  void welcome(const Buffer& payload) {
    Reader in(payload);
    for (int word = 0; word < 6; ++word) in.get<uint64_t>();  // its context, node, and ours
    notification_secret_ = in.get<uint64_t>();
    generation_ = in.get<uint32_t>();
    nonce_ = in.get<uint64_t>();
    const Bytes initiator = in.blob(), client_listener = in.blob();
    client_address_.assign(initiator.begin(), initiator.end());
    client_listener_address_.assign(client_listener.begin(), client_listener.end());
    if (!in.done()) return;
    auto opened = fabric_->open_endpoint(*this);
    if (!opened) return;
    serving_.push_back(opened.take());
    auto peer = serving_.back()->add_peer(initiator);
    auto listener_peer = listener_->add_peer(client_listener);
    if (!peer || !listener_peer) return;
    peer_ = *peer;
    client_listener_ = *listener_peer;
    secret_ = random_u64();
    ++report_.welcomed;
    say_welcome();
  }
  void say_welcome() {
    Buffer bytes(256);
    Writer out(bytes);
    out.put(generation_);
    out.put(nonce_);
    out.blob(serving_.back()->address());
    bytes.resize(out.size());
    send(*serving_.back(), peer_, Frame{FrameKind::kWelcome, 0, secret_, 0, 0, bytes});
  }
  Buffer honest_reply(uint16_t type) {
    Buffer bytes(64 + kPageSize);
    Writer out(bytes);
    out.put(static_cast<uint8_t>(WireStatus::kOk));
    if (type == static_cast<uint16_t>(RequestType::kOpen)) {
      out.put<uint64_t>(memory_.size() * 8);
      out.put<int32_t>(flags_);
      out.put<int32_t>(0);
      out.put<uint16_t>(0);
      out.put<uint64_t>(0);
    } else if (type == static_cast<uint16_t>(RequestType::kPresentToken)) {
      out.put(region_->key().key);
      out.put(region_->key().base);
      out.put<uint32_t>(7);
      out.put<uint32_t>(0);  // of which pages
      out.put<uint32_t>(static_cast<uint32_t>(memory_.size() * 8 / kPageSize));
      out.blob(region_->raw_key());
    } else if (type == static_cast<uint16_t>(RequestType::kCas)) {
      out.put<uint64_t>(0);
    } else if (type == static_cast<uint16_t>(RequestType::kPublishSwap)) {
      out.put<uint8_t>(0);
      out.put<uint64_t>(0);
    } else if (type == static_cast<uint16_t>(RequestType::kFetchWithIntent)) {
      out.bytes({reinterpret_cast<const std::byte*>(memory_.data()), kPageSize});
    }
    bytes.resize(out.size());
    return bytes;
  }
  void reply(uint64_t number, const Buffer& bytes) {
    send(*serving_.back(), peer_, Frame{FrameKind::kReply, 0, secret_, number, 0, bytes});
  }

  // ---- Lies

  uint64_t any() { return random_(); }
  bool one_in(uint32_t n) { return random_() % n == 0; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + static_cast<ptrdiff_t>(random_() % values.size()));
  }

  void answer(const Arrived& request) {
    ++report_.requests;
    if (serving_.empty()) return;
    if (request.type == static_cast<uint16_t>(RequestType::kOpen)) {
      Reader in(request.payload);
      in.get<uint64_t>();
      instance_ = in.get<uint32_t>();
    }
    Buffer bytes = honest_reply(request.type);
    if (lying_ && lie_ == HomeLie::kSilent && one_in(3)) {
      ++report_.lies;
      return;
    }
    if (lying_ && lie_ == HomeLie::kNoPages &&
        request.type == static_cast<uint16_t>(RequestType::kFetchWithIntent)) {
      ++report_.lies;
      bytes.resize(1);
    }
    if (lying_ && lie_ == HomeLie::kReplies) {
      ++report_.lies;
      switch (any() % 6) {
        case 0:
          bytes[0] = static_cast<std::byte>(any());
          break;
        case 1:
          bytes.resize(any() % (bytes.size() + 1));
          break;
        case 2:
          bytes.resize(bytes.size() + 1 + any() % 300);
          break;
        case 3:  // everything but the status
          for (size_t i = 1; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(any());
          break;
        case 4:  // a status of another request's
          bytes = {one_of({std::byte{2}, std::byte{3}, std::byte{9}, std::byte{10}, std::byte{11},
                           std::byte{12}})};
          break;
        default:
          break;  // the truth, for once
      }
    }
    reply(request.number, bytes);
    if (lying_ && lie_ == HomeLie::kReplies && one_in(3)) reply(request.number, honest_reply(2));
  }

  void say_something() {
    if (serving_.empty()) return;
    ++report_.lies;
    if (lie_ == HomeLie::kResumes) {
      change_peace(NotificationType::kResume, 1);
      change_peace(NotificationType::kQuiesce, 2);
      change_peace(NotificationType::kResume, 3);
    } else if (lie_ == HomeLie::kNotifications) {
      notification();
    } else if (lie_ == HomeLie::kUnasked) {
      switch (any() % 4) {
        case 0:
          reply(one_of({uint64_t{0}, any() % 64, ~uint64_t{0}, any()}),
                honest_reply(1 + any() % 12));
          break;
        case 1:
          nonce_ += one_in(2);
          generation_ += one_in(2);
          say_welcome();
          break;
        case 2: {
          Buffer bytes(one_of<size_t>({1, 35, 36, 37, 4096, fabric::kMaxMessage}));
          for (std::byte& b : bytes) b = static_cast<std::byte>(any());
          send(*serving_.back(), peer_, std::move(bytes));
          break;
        }
        default:
          send(*serving_.back(), peer_,
               Frame{one_of({FrameKind::kRequest, FrameKind::kNotification, FrameKind::kAck,
                             FrameKind::kHello, FrameKind::kDirectAck, FrameKind::kAckedBelow}),
                     static_cast<uint16_t>(any() % 40), secret_, any() % 100, 0, honest_reply(2)});
      }
    }
  }

  // About the import that was opened last.
  void change_peace(NotificationType type, uint32_t round) {
    Buffer bytes(64);
    Writer out(bytes);
    out.put(id_.hi);
    out.put(id_.lo);
    out.put(any());
    out.put(uid_);
    out.put(instance_);
    out.put(round);
    bytes.resize(out.size());
    send(*listener_, client_listener_,
         Frame{FrameKind::kNotification, static_cast<uint16_t>(type), notification_secret_, round,
               0, bytes});
  }

  // As an invalidation may carry them, of epochs that may be those of pages that are subscribed to.
  void put_update(Writer& out, uint32_t pages) {
    out.put(one_of({0u, 1u, pages - 1, pages, ~0u}));
    out.put(one_of({0u, 1u, 2u, 3u, static_cast<uint32_t>(any())}));
    out.put(one_of({0u, 0u, 1u, 2u, ~0u}));
    Buffer diff(64);
    Writer runs(diff);
    const auto n = one_of<uint16_t>({0, 1, 1, 2, 65535});
    runs.put(n);
    for (uint16_t i = 0; i < std::min<uint16_t>(n, 2); ++i) {
      runs.put(one_of<uint16_t>({0, 8, 4088, 4095, 4096, 65535}));
      runs.put(one_of<uint16_t>({0, 1, 8, 16, 65535}));
      runs.put(any());
    }
    out.put(one_of({static_cast<uint16_t>(runs.size()), static_cast<uint16_t>(any() % 70)}));
    out.bytes(runs.done());
  }
  void notification() {
    // In the name of another home it lacks the secret; in its own name it speaks of what is
    // others'.
    const bool own = !one_in(4);
    Buffer bytes(fabric::kMaxPayload);
    Writer out(bytes);
    out.put(own ? id_.hi : honest_->home.hi);
    out.put(own ? id_.lo : honest_->home.lo);
    out.put(any());                                     // for the acknowledgement
    const uint64_t direct_ack = one_in(2) ? 0 : any();  // to whom nobody has asked for one
    if (direct_ack != 0) {
      out.put(any());
      Buffer to(one_of<size_t>({0, 7, 16, 28, 48, 5000}));
      for (std::byte& b : to) b = static_cast<std::byte>(any());
      if (one_in(2)) to = one_in(2) ? client_address_ : client_listener_address_;
      out.blob(to);
    }
    const auto type = one_in(8) ? static_cast<uint16_t>(any())
                                : one_of<uint16_t>({1, 1, 1, 2, 4, 4, 33, 34, 35, 36});
    out.put(one_of({uid_, uid_, uid_, honest_->uid, any()}));
    out.put(one_of({1u, 2u, 3u, 4u, 0u, ~0u}));
    const auto pages = static_cast<uint32_t>(memory_.size() * 8 / kPageSize);
    out.put(one_of<uint16_t>({0, 1, 2, 3, 2048, 2049, 65535}));
    for (uint64_t n = any() % 4; n > 0; --n) {
      out.put(one_of({0u, 1u, pages - 1, pages, pages + 1, ~0u}));
      out.put(one_of({0u, 1u, pages, ~0u, static_cast<uint32_t>(any())}));
    }
    for (uint64_t n = one_in(2) ? any() % 4 : 0; n > 0; --n) put_update(out, pages);
    size_t size = out.size();
    if (one_in(5)) size = any() % (size + 1);
    if (one_in(9)) size += any() % 300;
    bytes.resize(size);
    send(*listener_, client_listener_,
         Frame{FrameKind::kNotification, type, notification_secret_, 1 + any() % 1000, direct_ack,
               bytes});
  }

  // Send buffers whose fate is open at the end of a connection: kept until the endpoints are gone.
  struct Stuck {
    void splice_from(std::deque<std::unique_ptr<SendBuffer>>& buffers) {
      for (auto& l : buffers) kept.push_back(std::move(l));
      buffers.clear();
    }
    std::vector<std::unique_ptr<SendBuffer>> kept;
  };

  std::mt19937_64 random_;
  const access::RsegInfo* honest_ = nullptr;
  HomeLie lie_{};
  bool lying_ = false;
  FalseReport report_;
  const ContextId id_ = random_context_id();
  uint64_t uid_ = 0;
  int32_t flags_ = CMI_SEG_CLIENT_INCONSIST;
  std::deque<Arrived> arrived_;
  // Of the importer that came last.
  uint64_t notification_secret_ = 0, nonce_ = 0, secret_ = 0;
  uint32_t generation_ = 0, instance_ = 0;
  fabric::Peer peer_{}, client_listener_{};
  Buffer client_address_, client_listener_address_;

  std::vector<uint64_t> memory_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<fabric::Region> region_;
  std::deque<std::unique_ptr<SendBuffer>> buffers_;  // before the endpoints: they outlive them
  Stuck stuck_;
  std::unique_ptr<fabric::Endpoint> listener_;
  std::vector<std::unique_ptr<fabric::Endpoint>> serving_;
};

std::unique_ptr<FalseHome> g_home;  // of this process, which ends with the test

access::RsegInfo decode(const Flat& flat) {
  auto info = access::decode_rseg(flat.bytes.data());
  if (!info) throw std::runtime_error("a bad handle");
  return *info;
}

}  // namespace

FalseSegment open_false_home(const Flat& honest, size_t size) {
  const access::RsegInfo info = decode(honest);
  if (g_home == nullptr) g_home = std::make_unique<FalseHome>(info, size);
  return g_home->another(info.listeners.at(0).provider);
}

FalseReport serve_falsely(HomeLie lie, uint64_t seed, const Board::Name& board,
                          const Flat& honest) {
  const access::RsegInfo info = decode(honest);
  return g_home->serve(lie, seed, Board::open(board)[0], info);
}

}  // namespace cmi::test
