// Finder and offerer, line against line, and what strangers say to either.
#include "core/rendezvous/exchange.hpp"

#include <doctest/doctest.h>

#include <random>

#include "core/base/cause.hpp"
#include "unit/some_offer.hpp"

namespace cmi::test::exchange_test {
using namespace cmi::rendezvous;
using cmi::test::some_offer;

namespace {

std::optional<std::string> table(const std::string& name) {
  if (name != "table") return std::nullopt;
  return *offer_text(some_offer());
}

// Both sides to the end, each message cut into pieces of `piece` bytes.
Result<Offer> converse(Asker& asker, Answerer& answerer, size_t piece,
                       std::string* heard = nullptr) {
  std::string to_answerer = asker.first(), to_asker;
  for (int round = 0; round < 4; ++round) {
    if (heard != nullptr) *heard += to_answerer;
    for (size_t at = 0; at < to_answerer.size(); at += piece) {
      if (!answerer.take(to_answerer.substr(at, piece), &to_asker)) break;
    }
    to_answerer.clear();
    if (heard != nullptr) *heard += to_asker;
    for (size_t at = 0; at < to_asker.size(); at += piece) {
      if (!asker.take(to_asker.substr(at, piece), &to_answerer)) return asker.result();
    }
    to_asker.clear();
  }
  return asker.result();
}

Result<Offer> ask(const std::string& name, const std::string& finders, const std::string& offerers,
                  size_t piece = 4096, std::string* heard = nullptr) {
  Asker asker(name, finders);
  Answerer answerer(table, offerers);
  return converse(asker, answerer, piece, heard);
}

std::string said(const std::string& question, const std::string& secret = {}) {
  Answerer answerer(table, secret);
  std::string out;
  (void)answerer.take(question, &out);
  return out;
}

const std::string kNonce(64, 'a');

}  // namespace

TEST_CASE("an_offer_goes_over_with_a_secret_and_without") {
  for (const char* secret : {"", "of both"}) {
    for (const size_t piece : {1, 7, 4096}) {
      CAPTURE(secret);
      CAPTURE(piece);
      const auto found = ask("table", secret, secret, piece);
      REQUIRE(found);
      CHECK(*found == some_offer());
      CHECK(ask("other", secret, secret, piece).status() == Status::kReconfig);
    }
  }
}

TEST_CASE("who_has_another_secret_gets_nothing_and_hears_why") {
  std::string heard;
  CHECK(ask("table", "mine", "theirs", 4096, &heard).status() == Status::kPerm);
  CHECK(std::string(take_cause(Status::kPerm)) == "the secret is not the one of the offer");
  CHECK(heard.find("cmi1-token") == std::string::npos);
  CHECK(ask("table", "", "theirs", 4096, &heard).status() == Status::kPerm);
  CHECK(std::string(take_cause(Status::kPerm)) == "the offer wants a secret, and none is given");
  CHECK(heard.find("cmi1-token") == std::string::npos);
  CHECK(ask("table", "mine", "").status() == Status::kPerm);
  CHECK(std::string(take_cause(Status::kPerm)) == "what answers there knows of no secret");
}

TEST_CASE("the_secret_itself_never_travels_and_no_proof_counts_twice") {
  std::string first, second;
  REQUIRE(ask("table", "hush hush", "hush hush", 4096, &first));
  REQUIRE(ask("table", "hush hush", "hush hush", 4096, &second));
  CHECK(first.find("hush") == std::string::npos);
  const auto proof = [](const std::string& heard) {
    return heard.substr(heard.find("proof "), 70);
  };
  CHECK(proof(first) != proof(second));
  // An old proof, said again.
  CHECK(said("cmi-find 1 " + kNonce + " table\n" + proof(first) + "\n", "hush hush")
            .ends_with("wrong\n"));
}

TEST_CASE("who_does_not_know_the_secret_cannot_offer") {
  for (const char* answer : {"offer", "none"}) {
    Asker asker("table", "secret");
    std::string out;
    REQUIRE(asker.take("prove " + kNonce + "\n", &out));
    std::string words = *offer_text(some_offer());
    for (char& c : words) c = c == '\n' ? ' ' : c;
    if (std::string(answer) == "none") words.clear();
    CHECK_FALSE(asker.take(std::string(answer) + " " + words + kNonce + "\n", &out));
    CHECK(asker.result().status() == Status::kPerm);
  }
}

TEST_CASE("what_is_no_question_gets_one_word") {
  for (const std::string& bad :
       {std::string("\n"), std::string("GET / HTTP/1.1\r\n\r\n"),
        "cmi-find 2 " + kNonce + " table\n", "cmi-find 1 " + kNonce + " ../table\n",
        "cmi-find 1 " + kNonce + " \n", "cmi-find 1 " + kNonce + "\n",
        "cmi-find 1 " + std::string(64, 'G') + " table\n",
        "cmi-find 1 " + kNonce + " " + std::string(201, 'n') + "\n", std::string(513, 'x'),
        std::string(1 << 20, 'x'), std::string(1 << 20, '\0')}) {
    CHECK(said(bad) == "bad\n");
    CHECK(said(bad, "secret") == "bad\n");
  }
  CHECK(said("cmi-find 1 " + kNonce + " table\nnoise\n", "secret").ends_with("bad\n"));
  CHECK(said("cmi-find 1 ").empty());
}

TEST_CASE("what_is_no_offerer_is_said_so") {
  for (const std::string& bad :
       {std::string("\n"), std::string("bad\n"), std::string("offer\n"),
        std::string("offer a b -\n"), std::string("prove 1\n"), std::string("wrong\n"),
        std::string("HTTP/1.1 400 Bad Request\r\n"), std::string(1 << 16, 'x')}) {
    CAPTURE(bad.substr(0, 40));
    Asker asker("table", "");
    std::string out;
    CHECK_FALSE(asker.take(bad, &out));
    CHECK(asker.result().status() == Status::kInval);
  }
  Asker asker("table", "");
  CHECK(asker.result().status() == Status::kReconfig);  // it has ended before it said anything
}

TEST_CASE("garbage_breaks_neither_side") {
  std::mt19937 random(7400);
  const std::string words[] = {"cmi-find 1 ",
                               "proof ",
                               "prove ",
                               "offer ",
                               "none ",
                               "-",
                               "\n",
                               "\n",
                               kNonce,
                               " ",
                               "table",
                               "cmi1-rseg-",
                               std::string(600, 'x')};
  for (int i = 0; i < 20000; ++i) {
    std::string noise;
    for (unsigned n = random() % 8; n > 0; --n) {
      noise += words[random() % std::size(words)];
      if (random() % 4 == 0) noise += static_cast<char>(random());
    }
    std::string out;
    Answerer answerer(table, random() % 2 == 0 ? "secret" : "");
    (void)answerer.take(noise, &out);
    REQUIRE(out.size() <= kMaxOfferText + 200);
    Asker asker("table", random() % 2 == 0 ? "secret" : "");
    out.clear();
    (void)asker.take(noise, &out);
    REQUIRE(out.size() <= 100);
    REQUIRE_FALSE(asker.result());
  }
}

}  // namespace cmi::test::exchange_test
