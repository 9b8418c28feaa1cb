#include "core/rendezvous/exchange.hpp"

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/ids.hpp"
#include "core/base/sha256.hpp"

namespace cmi::rendezvous {

namespace {

constexpr std::string_view kFind = "cmi-find 1 ";
constexpr size_t kDigits = 64;  // of a nonce, and of an HMAC

std::string fresh_nonce() {
  Digest nonce;
  for (size_t at = 0; at < nonce.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random_u64();
    std::copy_n(reinterpret_cast<const uint8_t*>(&word), sizeof word, nonce.begin() + at);
  }
  return to_hex(nonce);
}

bool is_digits(std::string_view text) {
  return text.size() == kDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// All three have no end of line in them, so what is hashed can be read in one way only.
std::string asked_of(std::string_view finder, std::string_view offerer, std::string_view name) {
  return std::string(finder) + "\n" + std::string(offerer) + "\n" + std::string(name) + "\n";
}

// `said`: the answer, up to the blank before this.
std::string proof_of(std::string_view secret, const char* side, const std::string& asked,
                     std::string_view said = {}) {
  if (secret.empty()) return "-";
  return to_hex(hmac_sha256(secret, std::string(side) + "\n" + asked + std::string(said)));
}

// Takes bytes up to the end of a line out of *bytes into *unread. 1: it is there, 0: not yet, -1:
// it is too long.
int gather(std::string_view* bytes, std::string* unread, size_t most) {
  const size_t end = bytes->find('\n');
  const size_t n = std::min(end, bytes->size());
  if (unread->size() + n > most) return -1;
  unread->append(bytes->substr(0, n));
  bytes->remove_prefix(end == std::string_view::npos ? n : n + 1);
  return end != std::string_view::npos ? 1 : 0;
}

// The loop of both sides: each line to `line`; false when one of them was the last, or too long.
template <class Line>
int take_lines(std::string_view bytes, std::string* unread, size_t most, Line line) {
  while (!bytes.empty()) {
    const int whole = gather(&bytes, unread, most);
    if (whole < 0) return -1;
    if (whole == 0) break;
    const std::string text = std::move(*unread);
    unread->clear();
    if (!line(text)) return 0;
  }
  return 1;
}

}  // namespace

bool Answerer::take(std::string_view bytes, std::string* out) {
  const int goes_on =
      take_lines(bytes, &unread_, kMaxLine, [&](std::string_view text) { return line(text, out); });
  if (goes_on < 0) *out += "bad\n";
  return goes_on > 0;
}

bool Answerer::line(std::string_view text, std::string* out) {
  if (asked_.empty()) return question(text, out);
  if (!text.starts_with("proof ")) {
    *out += "bad\n";
  } else if (!equal_in_constant_time(text.substr(6), proof_of(secret_, "finder", asked_))) {
    *out += "wrong\n";
  } else {
    *out += answer(secret_);
  }
  return false;
}

bool Answerer::question(std::string_view text, std::string* out) {
  const std::string_view nonce = text.substr(std::min(kFind.size(), text.size()), kDigits);
  const size_t name_at = kFind.size() + kDigits + 1;
  if (!text.starts_with(kFind) || !is_digits(nonce) || text.size() <= name_at ||
      text[name_at - 1] != ' ' || !legal_offer_name(text.substr(name_at))) {
    *out += "bad\n";
    return false;
  }
  name_ = text.substr(name_at);
  if (secret_.empty()) {
    *out += answer({});
    return false;
  }
  const std::string mine = fresh_nonce();
  asked_ = asked_of(nonce, mine, name_);
  *out += "prove " + mine + "\n";
  return true;
}

std::string Answerer::answer(std::string_view secret) const {
  std::string said = "none ";
  if (const auto found = lookup_(name_)) {
    said = "offer " + *found;
    std::replace(said.begin(), said.end(), '\n', ' ');
  }
  return said + proof_of(secret, "offerer", asked_, said) + "\n";
}

Asker::Asker(std::string name, std::string secret)
    : name_(std::move(name)), secret_(std::move(secret)), nonce_(fresh_nonce()) {
  first_ = std::string(kFind) + nonce_ + " " + name_ + "\n";
}

bool Asker::end(Status status, const char* words) {
  status_ = status;
  words_ = words;
  return false;
}

bool Asker::take(std::string_view bytes, std::string* out) {
  const int goes_on =
      take_lines(bytes, &unread_, kMaxLine, [&](std::string_view text) { return line(text, out); });
  if (goes_on < 0) return end(Status::kInval, "what answers there is no offer");
  return goes_on > 0;
}

bool Asker::line(std::string_view text, std::string* out) {
  if (text.starts_with("prove ") && asked_.empty()) {
    if (!is_digits(text.substr(6))) return end(Status::kInval, "what answers there is no offer");
    if (secret_.empty()) return end(Status::kPerm, "the offer wants a secret, and none is given");
    asked_ = asked_of(nonce_, text.substr(6), name_);
    *out += "proof " + proof_of(secret_, "finder", asked_) + "\n";
    return true;
  }
  if (text == "wrong" && !asked_.empty()) {
    return end(Status::kPerm, "the secret is not the one of the offer");
  }
  return answered(text);
}

bool Asker::answered(std::string_view text) {
  const bool is_offer = text.starts_with("offer ");
  const size_t blank = text.rfind(' ');
  if ((!is_offer && !text.starts_with("none ")) || blank == std::string_view::npos) {
    return end(Status::kInval, "what answers there is no offer");
  }
  if (!secret_.empty() && asked_.empty()) {
    return end(Status::kPerm, "what answers there knows of no secret");
  }
  const std::string_view said = text.substr(0, blank + 1);
  const std::string proof = proof_of(secret_, "offerer", asked_, said);
  if (!equal_in_constant_time(text.substr(blank + 1), proof)) {
    return end(Status::kPerm, "what answers there does not know the secret");
  }
  if (!is_offer) return end(Status::kReconfig, "nobody offers it yet");
  std::string words(said.substr(6));
  std::replace(words.begin(), words.end(), ' ', '\n');
  auto offer = parse_offer(words);
  if (!offer) return end(Status::kInval, "the offer is damaged");
  offer_ = offer.take();
  return end(Status::kOk, nullptr);
}

Result<Offer> Asker::result() const {
  if (offer_) return *offer_;
  return because(status_, words_);
}

}  // namespace cmi::rendezvous
