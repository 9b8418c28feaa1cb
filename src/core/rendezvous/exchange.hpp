// What finder and offerer say to each other over one connection, without the connection: lines of
// words, each side bounded in what it takes. Of a question and an offer with a secret S:
//
//   finder:  cmi-find 1 FINDERS-NONCE NAME
//   offerer: prove OFFERERS-NONCE
//   finder:  proof HMAC(S, "finder" and all of the above)
//   offerer: offer HANDLE TOKEN HMAC(S, "offerer" and all of the above), or none HMAC, or wrong
//
// Without a secret the offerer answers the first line, with '-' in place of the HMAC. To what is
// not understood it says "bad". The secret itself never travels, and each side knows that the other
// has it; handle and token are not hidden. A name is looked up for those alone that may have it.
//
// One thread at a time, without locks, without system calls but for a nonce.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/rendezvous/offer.hpp"

namespace cmi::rendezvous {

// The offerer's side of one connection.
class Answerer {
 public:
  static constexpr size_t kMaxLine = 512;  // bytes of what a finder says
  // The text of an offer (offer_text()), or nullopt.
  using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

  Answerer(Lookup lookup, std::string secret)
      : lookup_(std::move(lookup)), secret_(std::move(secret)) {}

  // Takes what has come, in pieces of any length, and adds to *out what is to be sent. False: all
  // has been said, and nothing more is taken.
  bool take(std::string_view bytes, std::string* out);

 private:
  bool line(std::string_view text, std::string* out);
  bool question(std::string_view text, std::string* out);
  std::string answer(std::string_view secret) const;

  Lookup lookup_;
  std::string secret_;  // empty: none
  std::string unread_, name_;
  std::string asked_;  // both nonces and the name, once they are known
};

// The finder's side.
class Asker {
 public:
  static constexpr size_t kMaxLine = kMaxOfferText + 512;  // bytes of what an offerer says

  Asker(std::string name, std::string secret);

  // What is to be sent first.
  const std::string& first() const { return first_; }
  // As Answerer::take(). False: the result is known.
  bool take(std::string_view bytes, std::string* out);
  // kReconfig: there is no such offer, or the connection has ended too soon; kPerm: the secrets are
  // not the same, or one side has none; kInval: what is there is no offerer, or the offer is
  // damaged.
  Result<Offer> result() const;

 private:
  bool line(std::string_view text, std::string* out);
  bool answered(std::string_view text);
  bool end(Status status, const char* words);

  const std::string name_, secret_;
  std::string nonce_, first_, unread_;
  std::string asked_;  // as of Answerer; empty until the offerer has asked for a proof
  std::optional<Offer> offer_;
  Status status_ = Status::kReconfig;
  const char* words_ = "the connection to the offer ended early";
};

}  // namespace cmi::rendezvous
