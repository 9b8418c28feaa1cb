// How each lie is made.
#include "fault/liar.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/clock.hpp"
#include "core/base/ids.hpp"
#include "fabric/fabric.hpp"
#include "fabric/frame.hpp"
#include "fabric/lifeline.hpp"

namespace cmi::test {

namespace {

using fabric::Frame;
using fabric::FrameKind;
using Buffer = std::vector<std::byte>;

constexpr Nanos kPatience = 10 * kSecond;
constexpr uint32_t kOpen = 1, kPresentToken = 2, kAnnounce = 5, kRequestTypes = 9, kAcquire = 9,
                   kSubscribe = 14;

// The line of one who says to be somebody: whether it came up.
class Pretence final : public fabric::LifelineOwner {
 public:
  bool up = false;

 private:
  bool admits(const ContextId&, uint64_t) override { return false; }
  bool follows(const ContextId&) override { return false; }
  void on_up(const ContextId&, fabric::Side, uint16_t, uint64_t) override { up = true; }
  void on_sign(const ContextId&, fabric::Side, fabric::Sign, uint64_t) override {}
  void on_lost(const ContextId&, fabric::Side) override {}
  void on_refused(const ContextId&, fabric::Side) override {}
};

class Liar final : public fabric::Receiver {
 public:
  explicit Liar(const Order& order)
      : order_(order),
        random_(order.seed),
        readable_(decode(order.readable)),
        writable_(decode(order.writable)),
        closed_(decode(order.closed)),
        other_(decode(order.other)),
        read_token_(token(order.readable_token)),
        write_token_(token(order.writable_token)),
        id_(order.lie == Lie::kImpostor ? other_.home : random_context_id()) {
    auto opened = fabric::open_fabric({readable_.listeners.at(0).provider, ""});
    if (!opened) throw std::runtime_error("no fabric");
    fabric_ = opened.take();
    endpoint_ = open();
    listener_ = peer(readable_.listeners[0].blob);
    others_listener_ = peer(other_.listeners.at(0).blob);
  }

  Report run() {
    report_.entered = enter(1) && present();
    for (uint32_t i = 0; i < order_.count; ++i) {
      tell(i);
      if (i % 64 == 0) pump();
    }
    drain();
    report_.answers = answers_;
    report_.good = good_;
    report_.welcomes = welcomes_;
    return report_;
  }

  void on_message(fabric::Endpoint&, Bytes message) override {
    Frame f;
    if (!fabric::decode_frame(message, &f)) return;
    if (f.kind == FrameKind::kWelcome) {
      ++welcomes_;
      Reader in(f.payload);
      welcome_generation_ = in.get<uint32_t>();
      in.get<uint64_t>();
      const Bytes at = in.blob();
      serving_address_.assign(at.begin(), at.end());
      welcome_secret_ = f.secret;
    } else if (f.kind == FrameKind::kReply && f.number != 0) {
      ++answers_;
      last_answer_ = f.number;
      last_reply_.assign(f.payload.begin(), f.payload.end());
      last_status_ = f.payload.empty() ? 255 : static_cast<int>(f.payload[0]);
      good_ += last_status_ == 0;
    }
  }

 private:
  static access::RsegInfo decode(const Flat& flat) {
    auto info = access::decode_rseg(flat.bytes.data());
    if (!info) throw std::runtime_error("a bad handle");
    return *info;
  }
  static access::TokenInfo token(const Flat& flat) {
    auto info = access::decode_token(flat.bytes.data());
    if (!info) throw std::runtime_error("a bad token");
    return *info;
  }

  std::unique_ptr<fabric::Endpoint> open() {
    auto opened = fabric_->open_endpoint(*this);
    if (!opened) throw std::runtime_error("no endpoint");
    return opened.take();
  }
  fabric::Peer peer(Bytes address) {
    auto added = endpoint_->add_peer(address);
    if (!added) throw std::runtime_error("no peer");
    return *added;
  }

  // ---- Sending

  void pump() {
    endpoint_->poll();
    while (!buffers_.empty() && buffers_.front()->op.done()) buffers_.pop_front();
  }
  void drain() {
    const Deadline deadline = Deadline::in(kPatience);
    while (!buffers_.empty() && !deadline.passed()) pump();
    // The home's answers to the last of them.
    const Deadline soon = Deadline::in(50 * kMilli);
    while (!soon.passed()) endpoint_->poll();
  }
  // False when the other side does not take it: it may have cut the connection, and may.
  bool send(fabric::Peer to, Buffer bytes, Nanos patience = 20 * kMilli) {
    if (bytes.empty()) bytes.resize(1);
    buffers_.push_back(std::make_unique<SendBuffer>());
    SendBuffer& buffer = *buffers_.back();
    buffer.bytes = std::move(bytes);
    const Deadline deadline = Deadline::in(patience);
    for (;;) {
      const auto post = endpoint_->send(buffer.op, to, buffer.bytes.data(), buffer.bytes.size());
      if (post == fabric::Post::kPosted) break;
      pump();
      if (post == fabric::Post::kFailed || deadline.passed()) {
        buffers_.pop_back();
        return false;
      }
    }
    ++report_.sent;
    return true;
  }
  static Buffer bytes_of(const Frame& f) {
    Buffer bytes(fabric::frame_size(f));
    Writer out(bytes);
    fabric::encode_frame(f, out);
    return bytes;
  }
  bool send(fabric::Peer to, const Frame& f, Nanos patience = 20 * kMilli) {
    return send(to, bytes_of(f), patience);
  }

  // ---- What an honest peer would say

  Buffer hello(ContextId id, uint32_t generation) {
    Buffer bytes(1024);
    Writer out(bytes);
    for (uint64_t word : {id.hi, id.lo, uint64_t{1}, uint64_t{2}, readable_.home.hi,
                          readable_.home.lo, notification_secret_}) {
      out.put(word);
    }
    out.put(generation);
    out.put<uint64_t>(0x0ce);
    out.blob(endpoint_->address());
    out.blob(endpoint_->address());
    bytes.resize(out.size());
    return bytes;
  }
  bool enter(uint32_t generation) {
    welcome_generation_ = 0;
    send(listener_, Frame{FrameKind::kHello, 0, 0, 0, 0, hello(id_, generation)}, kPatience);
    const Deadline deadline = Deadline::in(kPatience);
    while (welcome_generation_ != generation) {
      if (deadline.passed()) return false;
      pump();
    }
    serving_ = peer(serving_address_);
    secret_ = welcome_secret_;
    return true;
  }
  // One request and its answer; the status, or -1.
  int call(uint16_t type, const Buffer& payload) {
    const uint64_t number = ++number_;
    send(serving_, Frame{FrameKind::kRequest, type, secret_, number, 0, payload}, kPatience);
    const Deadline deadline = Deadline::in(kPatience);
    while (last_answer_ != number) {
      if (deadline.passed()) return -1;
      pump();
    }
    return last_status_;
  }
  static Buffer presenting(const access::TokenInfo& token, uint32_t instance = kInstance) {
    Buffer bytes(64);
    Writer out(bytes);
    out.put(token.uid);
    out.put(instance);
    out.put(token.id);
    out.put(token.secret);
    out.put<uint64_t>(1);
    out.put<uint64_t>(2);
    bytes.resize(out.size());
    return bytes;
  }
  bool present() {
    return call(kPresentToken, presenting(read_token_)) == 0 &&
           call(kPresentToken, presenting(write_token_)) == 0;
  }

  // ---- Lies

  void say_the_end_of_another() {
    Buffer bytes(12);
    Writer out(bytes);
    out.put(readable_.uid);
    out.put(kInstance);
    if (call(kOpen, bytes) != 0) return;
    Reader in(last_reply_);
    in.get<uint8_t>();
    in.get<uint64_t>();
    in.get<int32_t>();
    in.get<int32_t>();
    const auto port = in.get<uint16_t>();
    const auto secret = in.get<uint64_t>();
    Pretence pretence;
    const Bytes own = endpoint_->address();
    auto lines = fabric::Lifelines::open({own}, id_, 10 * kSecond, pretence);
    if (!in.ok() || !lines) return;
    (*lines)->connect(readable_.home, readable_.listeners[0].blob, port, secret, now());
    const Deadline deadline = Deadline::in(kPatience);
    while (!pretence.up && !deadline.passed()) (*lines)->advance(now());
    (*lines)->say_goodbye();
    report_.believed = pretence.up;
  }

  // One more import of the writable segment, which holds its first region.
  bool import_once_more(uint32_t instance) {
    Buffer opening(12), holding(24);
    Writer open(opening), hold(holding);
    open.put(writable_.uid);
    open.put(instance);
    hold.put(writable_.uid);
    for (uint32_t word : {instance, 0u, 1u, 1u}) hold.put(word);  // one region, in epoch 1
    return call(kOpen, opening) == 0 &&
           call(kPresentToken, presenting(write_token_, instance)) == 0 &&
           call(kAcquire, holding) == 0;
  }

  uint64_t any() { return random_(); }
  bool one_in(uint32_t n) { return random_() % n == 0; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + static_cast<ptrdiff_t>(random_() % values.size()));
  }
  uint64_t some_uid() {
    return one_of(
        {readable_.uid, writable_.uid, writable_.uid, closed_.uid, closed_.uid ^ 1, any()});
  }
  uint32_t some_instance() { return one_of({kInstance, kInstance, kInstance, 0u, 2u, ~0u}); }
  // Near the borders of what is there.
  uint32_t some_page() {
    const auto pages = static_cast<uint32_t>(writable_.size / kPage);
    return one_of(
        {0u, 1u, pages - 1, pages, pages + 1, ~0u, ~0u - pages, static_cast<uint32_t>(any())});
  }
  uint64_t some_offset() {
    const uint64_t size = writable_.size;
    return one_of({uint64_t{0}, uint64_t{8}, uint64_t{4}, size - 8, size - 7, size, size + 8,
                   uint64_t{0} - 8, ~uint64_t{0}, any(), any() % size});
  }
  uint32_t some_count() { return one_of({0u, 1u, 2u, 3u, 7u, 2048u, 2049u, ~0u, 1u << 20}); }

  void put_diff(Writer& out) {
    if (one_in(4)) {  // the form with a bit for each byte
      out.put<uint16_t>(65535);
      const size_t bytes = any() % 700;
      for (size_t i = 0; i < bytes; ++i) out.put(static_cast<uint8_t>(one_in(2) ? 255 : any()));
      return;
    }
    const auto runs = one_of<uint16_t>({0, 1, 2, 5, 128, 129, 65534});
    out.put(runs);
    for (uint16_t i = 0; i < std::min<uint16_t>(runs, 6); ++i) {
      const auto offset =
          one_of<uint16_t>({0, 1, 8, 4088, 4095, 4096, 65535, static_cast<uint16_t>(any())});
      const auto length =
          one_of<uint16_t>({0, 1, 8, 9, 4096, 65535, static_cast<uint16_t>(any() % 4097)});
      out.put(offset);
      out.put(length);
      const size_t really = one_in(3) ? any() % 64 : length;
      for (size_t k = 0; k < std::min<size_t>(really, out.room()); ++k) out.put<uint8_t>(0xee);
    }
  }

  // A request of some type, whose fields may be anything.
  Buffer payload(uint16_t type) {
    Buffer bytes(fabric::kMaxPayload);
    Writer out(bytes);
    if (type == kPresentToken) {
      const access::TokenInfo& token = one_in(2) ? read_token_ : write_token_;
      out.put(one_in(2) ? token.uid : some_uid());
      out.put(some_instance());
      out.put(one_in(2) ? token.id : any());
      out.put(one_in(4) ? token.secret ^ 1 : token.secret);
      out.put<uint64_t>(1);
      out.put<uint64_t>(2);
    } else {
      out.put(some_uid());
      out.put(some_instance());
      switch (type) {
        case 4:    // publish
        case 8: {  // repair
          out.put(some_count());
          for (uint64_t pages = any() % 4; pages > 0; --pages) {
            out.put(some_page());
            if (type == 4) {
              out.put(static_cast<uint8_t>(any() % 3));  // epoch of a dirty intent
              put_diff(out);
            } else {
              const size_t size = one_in(3) ? any() % 9000 : 2 * kPage;
              for (size_t i = 0; i < std::min(size, out.room()); ++i) {
                out.put(static_cast<uint8_t>(i < kPage ? 0x11 : 0xee));
              }
            }
          }
          if (type == 4 && !one_in(4)) out.put(one_in(2) ? 0 : any());  // secret of direct acks
          break;
        }
        case 5:  // announce
          out.put(some_count());
          for (uint64_t ranges = any() % 40; ranges > 0; --ranges) {
            out.put(some_page());
            out.put(some_page());
          }
          break;
        case 6:  // cas
          out.put(some_offset());
          out.put(one_in(2) ? uint64_t{0x1111111111111111} : any());
          out.put(any());
          break;
        case 9:  // hold
          out.put(one_of({0u, 1u, ~0u, static_cast<uint32_t>(any())}));
          out.put(some_count());
          out.put(static_cast<uint32_t>(one_in(4) ? 0 : any()));
          break;
        case kSubscribe:
          out.put(some_page());
          out.put(static_cast<uint32_t>(one_in(4) ? 0 : any()));
          break;
        default:
          break;
      }
    }
    size_t size = out.size();
    if (one_in(5)) size = any() % (size + 1);
    if (one_in(9)) size = std::min(size + any() % 300, bytes.size());
    bytes.resize(size);
    return bytes;
  }
  uint16_t some_type() {
    // Leaving would end the lies.
    const auto type = static_cast<uint16_t>(1 + any() % (kRequestTypes + 1));
    return type == 3 ? 7 : type > kRequestTypes ? kSubscribe : type;
  }

  Buffer garbage() {
    Buffer bytes(one_of<size_t>({1, 4, 35, 36, 37, 100, 4096, fabric::kMaxMessage}));
    const auto first = static_cast<uint8_t>(any());
    for (std::byte& b : bytes) b = static_cast<std::byte>(one_in(2) ? first : any());
    if (one_in(2)) {  // a head that may pass, at least
      Writer out(bytes);
      out.put(fabric::kFrameMagic);
      out.put(static_cast<uint8_t>(any() % 8));
      out.put<uint8_t>(0);
    }
    return bytes;
  }
  void damage(Buffer* bytes) {
    switch (any() % 4) {
      case 0:
        bytes->resize(any() % bytes->size());
        break;
      case 1:
        bytes->resize(std::min(bytes->size() + 1 + any() % 64, fabric::kMaxMessage));
        break;
      default:
        for (uint64_t flips = 1 + any() % 8; flips > 0; --flips) {
          (*bytes)[any() % bytes->size()] ^= static_cast<std::byte>(1u << any() % 8);
        }
    }
  }

  void tell(uint32_t i) {
    switch (order_.lie) {
      case Lie::kGarbage:
        send(one_in(2) ? listener_ : serving_, garbage());
        break;
      case Lie::kFrames: {
        const uint16_t type = some_type();
        Buffer bytes = bytes_of({FrameKind::kRequest, type, secret_, ++number_, 0, payload(type)});
        const bool first_contact = one_in(100);  // each that passes takes an endpoint at home
        if (first_contact) {
          bytes = bytes_of({FrameKind::kHello, 0, 0, 0, 0, hello({any(), any()}, 1)});
        }
        damage(&bytes);
        send(first_contact ? listener_ : serving_, bytes);
        break;
      }
      case Lie::kRequests: {
        const auto type = one_in(30) ? static_cast<uint16_t>(any()) : some_type();
        if (one_in(10)) {  // some of its requests are over, it says, and others that never were
          Buffer numbers(one_of<size_t>({0, 8, 16, 9, 8 * fabric::kMostAckedBelow + 8}));
          for (std::byte& b : numbers) b = static_cast<std::byte>(one_in(2) ? 0 : any());
          send(serving_, Frame{FrameKind::kAckedBelow, 0, secret_, 0,
                               one_of({uint64_t{0}, number_ / 2, number_}), numbers});
        }
        send(serving_, Frame{FrameKind::kRequest, type, secret_, ++number_, 0, payload(type)});
        break;
      }
      case Lie::kReplays: {
        const uint16_t type = some_type();
        const uint64_t number = one_of(
            {number_, number_ + 1, uint64_t{0}, uint64_t{1}, ~uint64_t{0}, any() % (number_ + 2)});
        const uint64_t settled = one_of({uint64_t{0}, number_, number, ~uint64_t{0}, any()});
        number_ += one_in(2);
        send(serving_, Frame{FrameKind::kRequest, type, secret_, number, settled, payload(type)});
        break;
      }
      case Lie::kOldLife: {
        if (i % 100 == 0 && generation_ < 12) {
          old_lives_.emplace_back(serving_, secret_);
          enter(++generation_);
        }
        const auto& [serving, secret] = old_lives_[any() % old_lives_.size()];
        const uint16_t type = some_type();
        if (one_in(4)) {
          const auto generation = static_cast<uint32_t>(any() % (generation_ + 1));
          send(listener_, Frame{FrameKind::kHello, 0, 0, 0, 0, hello(id_, generation)});
        } else {
          // To the old endpoint, which is gone, or with the old secret to the one that is there.
          send(one_in(8) ? serving : serving_,
               Frame{FrameKind::kRequest, type, secret, ++number_, 0, payload(type)});
        }
        break;
      }
      case Lie::kAcks: {
        Buffer bytes(64);
        Writer out(bytes);
        const bool own = one_in(2);
        out.put(own ? id_.hi : other_.home.hi);
        out.put(own ? id_.lo : other_.home.lo);
        for (uint64_t pairs = any() % 3; pairs > 0; --pairs) {
          out.put(static_cast<uint32_t>(any() % 8));
          out.put(static_cast<uint32_t>(any()));
        }
        bytes.resize(out.size());
        send(listener_, Frame{FrameKind::kAck, 0, one_of({secret_, notification_secret_, any()}),
                              1 + any() % 5000, 0, bytes});
        break;
      }
      case Lie::kStrangers: {
        const auto kind = one_of({FrameKind::kRequest, FrameKind::kNotification, FrameKind::kAck,
                                  FrameKind::kReply, FrameKind::kWelcome, FrameKind::kDirectAck,
                                  FrameKind::kAckedBelow});
        Buffer bytes(128);
        Writer out(bytes);
        out.put(readable_.home.hi);  // as if the home said it
        out.put(readable_.home.lo);
        out.put(any());
        out.put(closed_.uid);
        out.put<uint32_t>(1);
        out.put<uint32_t>(1);
        out.put<uint32_t>(0);
        out.put<uint32_t>(16);
        bytes.resize(out.size());
        send(one_of({listener_, serving_, others_listener_}),
             Frame{kind, static_cast<uint16_t>(1 + any() % 3), one_in(2) ? 0 : any(),
                   1 + any() % 1000, 0, bytes});
        break;
      }
      case Lie::kHellos: {
        // One by one as long as each is welcomed, then as fast as they are taken.
        const uint64_t before = welcomes_;
        send(listener_, Frame{FrameKind::kHello, 0, 0, 0, 0, hello({any(), any()}, 1)});
        const Deadline deadline = Deadline::in(full_ ? 0 : 5 * kSecond);
        while (welcomes_ == before && !deadline.passed()) pump();
        full_ = welcomes_ == before;
        break;
      }
      case Lie::kDeaf: {
        for (; imports_ < 256; ++imports_) {
          if (!import_once_more(kInstance + 1 + imports_)) return;
        }
        if (++announced_ > 300) {  // 256 are enough; from now on it is merely there
          const Deadline pause = Deadline::in(100 * kMilli);
          while (!pause.passed()) pump();
          break;
        }
        Buffer bytes(24);
        Writer out(bytes);
        out.put(writable_.uid);
        for (uint32_t word : {kInstance, 1u, 0u, 1u}) out.put(word);  // one range, page 0 alone
        send(serving_, Frame{FrameKind::kRequest, kAnnounce, secret_, ++number_, 0, bytes});
        pump();
        break;
      }
      case Lie::kExcuses: {
        Buffer bytes(64);
        Writer out(bytes);
        out.put(writable_.uid);
        out.put(kInstance);
        for (uint32_t word : {1u, 5u, 1u}) out.put(word);  // one range, page 5 alone
        bytes.resize(out.size());
        send(serving_, Frame{FrameKind::kRequest, 5, secret_, ++number_, number_, bytes});
        const Deadline pause = Deadline::in(100 * kMilli);
        while (last_answer_ + 1 < number_ && !pause.passed()) pump();
        Board::open(order_.board)[0] = answers_;
        break;
      }
      case Lie::kImpostor:
        say_the_end_of_another();
        break;
    }
  }

  struct SendBuffer {
    fabric::Op op;
    Buffer bytes;
  };
  static constexpr uint32_t kInstance = 1;

  const Order& order_;
  std::mt19937_64 random_;
  const access::RsegInfo readable_, writable_, closed_, other_;
  const access::TokenInfo read_token_, write_token_;
  const ContextId id_;
  const uint64_t notification_secret_ = random_u64();
  uint64_t number_ = 0, secret_ = 0;
  uint32_t generation_ = 1;
  uint32_t imports_ = 0, announced_ = 0;  // the former beside the first
  bool full_ = false;                     // a first contact was not welcomed
  std::vector<std::pair<fabric::Peer, uint64_t>> old_lives_;
  Report report_;
  // From on_message(), on the only thread.
  uint32_t welcome_generation_ = 0;
  uint64_t welcomes_ = 0, welcome_secret_ = 0, answers_ = 0, good_ = 0, last_answer_ = 0;
  int last_status_ = -1;
  Buffer serving_address_, last_reply_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::deque<std::unique_ptr<SendBuffer>> buffers_;  // before the endpoint: they outlive it
  std::unique_ptr<fabric::Endpoint> endpoint_;
  fabric::Peer listener_{}, serving_{}, others_listener_{};
};

}  // namespace

Report tell_lies(const Order& order) { return std::make_unique<Liar>(order)->run(); }

}  // namespace cmi::test
