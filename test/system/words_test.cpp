// Errors in words, and objects as text, as a client calls for them.
#include <cmi/ofi/cmi_impl.h>
#include <dlfcn.h>

#include <set>
#include <string>

#include "system/one_process.hpp"

namespace cmi::one_process::words_test {

namespace {

std::string text() { return cmi_ofi_error_text(nullptr); }
bool has(const std::string& words, const char* part) {
  return words.find(part) != std::string::npos;
}

// Of an object, as a client gets it: with a buffer that suffices.
std::string word_of(const void* object) {
  char word[CMI_OFI_TEXT_SIZE];
  size_t len = sizeof word;
  REQUIRE(cmi_ofi_format(object, word, &len) == 0);
  CHECK(len == std::strlen(word) + 1);
  return word;
}

}  // namespace

TEST_SUITE("api") {
  TEST_CASE_FIXTURE(Process, "a_failed_call_leaves_a_sentence_without_a_trace") {
    ini();
    CHECK_FAILS(CALL(seg_get, 1, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
    const std::string sentence = text();
    CHECK(has(sentence, "seg_get"));
    CHECK(has(sentence, "CMI_ERR_INVAL"));
    CHECK(sentence.size() > std::strlen("seg_get: CMI_ERR_INVAL, ") + 10);
    CHECK(cmi_ofi_error_text(ctxt) == sentence);
    // Another thread has its own, and the words of a call that succeeds replace it by nothing.
    in_thread([&] {
      CHECK(text().empty());
      CHECK(CMIFN(ctxt, 10, mb_fn)(ctxt) == -1);
      CHECK(has(text(), "mb_fn: CMI_ERR_INIT"));
    });
    CHECK(text() == sentence);
    (void)segment();
    CHECK(text().empty());
  }

  TEST_CASE_FIXTURE(Process, "each_error_of_a_call_has_its_sentence") {
    cmi_cbs half{};
    half.alloc = [](size_t n, void*) { return std::malloc(n); };
    CHECK(cmi_ini(CMI_VERNO, &half) == nullptr);
    CHECK(has(text(), "cmi_ini"));
    CHECK(has(text(), cmi_ofi_error_name(cmi_get_error(nullptr))));
    ini();
    cmi_ctxt other{};
    CHECK_FAILS(CMIFN(ctxt, 11, seg_get)(&other, unit(), 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
    CHECK(has(text(), "not the context of this process"));
    cmi_ofi_stats stats{};
    CHECK_FAILS(cmi_ofi_get_stats(ctxt, &stats), -1, CMI_ERR_INVAL);
    CHECK(has(text(), "cmi_ofi_get_stats: CMI_ERR_INVAL"));
    CHECK_FAILS(CALL(tok_del, nullptr), -1, CMI_ERR_INVAL);
    CHECK(has(text(), "tok_del"));
    CHECK_FAILS(CALL(ini_th), -1, CMI_ERR_BOUND);
    CHECK(has(text(), "CMI_ERR_BOUND"));
  }

  TEST_CASE_FIXTURE(Process, "the_counters_have_two_names_and_one_structure") {
    ini();
    (void)segment();
    cmi_ofi_stats stats{};
    stats.size = sizeof stats;
    CHECK(cmi_ofi_get_stats(ctxt, &stats) == 0);
    cmi_ofi_stats again{};
    again.size = sizeof again;
    CHECK(cmi_ofi_stats(ctxt, &again) == 0);
    CHECK(again.cas_calls == stats.cas_calls);
    // What programs in C link to.
    using Function = int (*)(cmi_ctxt*, cmi_ofi_stats*);
    const auto linked = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, "cmi_ofi_stats"));
    REQUIRE(bool{linked != nullptr});
    struct cmi_ofi_stats of_c {};
    of_c.size = sizeof of_c;
    CHECK(linked(ctxt, &of_c) == 0);
    CHECK(of_c.ticks >= stats.ticks);
    of_c.size = 1;
    CHECK_FAILS(linked(ctxt, &of_c), -1, CMI_ERR_INVAL);
  }

  TEST_CASE("errors_exceptions_and_events_have_names_and_meanings") {
    std::set<std::string> names, meanings;
    for (int e = CMI_ERR_NONE; e <= CMI_ERR_RECONFIG; ++e) {
      names.insert(cmi_ofi_error_name(static_cast<cmi_error>(e)));
      meanings.insert(cmi_ofi_strerror(static_cast<cmi_error>(e)));
    }
    CHECK(names.size() == 10);
    CHECK(meanings.size() == 10);
    CHECK(cmi_ofi_error_name(CMI_ERR_STORE) == std::string("CMI_ERR_STORE"));
    CHECK(cmi_ofi_strerror(static_cast<cmi_error>(99)) == std::string("an unknown error"));
    CHECK(cmi_ofi_error_name(static_cast<cmi_error>(-1)) == std::string("an unknown error"));
    CHECK(cmi_ofi_exception_name(CMI_ERROR_CONSIST) == std::string("CMI_ERROR_CONSIST"));
    CHECK(cmi_ofi_exception_name(1000) == std::string("an unknown exception"));
    CHECK(cmi_ofi_event_name(CMI_EVENT_CMAP) == std::string("CMI_EVENT_CMAP"));
    CHECK(cmi_ofi_event_name(static_cast<cmi_event_type>(0)) == std::string("an unknown event"));
  }

  TEST_CASE_FIXTURE(Process, "handles_tokens_and_addresses_go_through_text") {
    ini();
    const cmi_seg seg = segment();
    cmi_rseg* rseg = CALL(seg_exp, seg, 0);
    REQUIRE(rseg != nullptr);
    const Flat handle = copy_of(seg, rseg);
    cmi_token* tok = CALL(tok_new, seg, CMI_NADDR_ANY, CMI_ACC_READ);
    REQUIRE(tok != nullptr);
    const Flat token = copy_of(seg, tok);
    const auto* naddr = reinterpret_cast<const std::byte*>(ctxt->naddr);
    const Flat address(naddr, naddr + size_of(seg, CMI_ATTR_NODEADDR_SIZE));
    const std::string words[] = {word_of(rseg), word_of(tok), word_of(ctxt->naddr)};
    const Flat objects[] = {handle, token, address};
    for (size_t i = 0; i < 3; ++i) {
      Flat back(objects[i].size());
      size_t len = back.size();
      CHECK(cmi_ofi_parse(words[i].c_str(), back.data(), &len) == 0);
      CHECK(len == back.size());
      CHECK(back == objects[i]);
    }
    CHECK(words[0].starts_with("cmi1-rseg-"));
    CHECK(words[1].starts_with("cmi1-token-"));
    CHECK(words[2].starts_with("cmi1-naddr-"));
    // What came back is what the calls take.
    Flat back(token.size());
    size_t len = back.size();
    REQUIRE(cmi_ofi_parse(words[1].c_str(), back.data(), &len) == 0);
    CHECK(CALL(tok_del, tok) == 0);
    CHECK(CALL(rseg_del, rseg) == 0);
  }

  TEST_CASE_FIXTURE(Process, "text_of_objects_says_what_fits_and_what_is_wrong") {
    ini();
    char word[CMI_OFI_TEXT_SIZE];
    size_t len = 0;
    CHECK_FAILS(cmi_ofi_format(ctxt->naddr, nullptr, &len), -1, CMI_ERR_NOMEM);
    const size_t wanted = len;
    CHECK(wanted > 20);
    len = wanted - 1;
    word[wanted - 1] = 'x';
    CHECK_FAILS(cmi_ofi_format(ctxt->naddr, word, &len), -1, CMI_ERR_NOMEM);
    CHECK(len == wanted);
    CHECK(word[wanted - 1] == 'x');
    CHECK(cmi_ofi_format(ctxt->naddr, word, &len) == 0);
    CHECK_FAILS(cmi_ofi_format(ctxt->naddr, nullptr, &len), -1, CMI_ERR_INVAL);
    CHECK_FAILS(cmi_ofi_format(ctxt->naddr, word, nullptr), -1, CMI_ERR_INVAL);
    CHECK_FAILS(cmi_ofi_format(nullptr, word, &len), -1, CMI_ERR_INVAL);
    CHECK(has(text(), "cmi_ofi_format"));

    std::byte object[64];
    len = 63;
    CHECK_FAILS(cmi_ofi_parse(word, object, &len), -1, CMI_ERR_NOMEM);
    CHECK(len == 64);
    CHECK(cmi_ofi_parse(word, object, &len) == 0);
    CHECK(std::memcmp(object, ctxt->naddr, len) == 0);
    CHECK_FAILS(cmi_ofi_parse(word, nullptr, &len), -1, CMI_ERR_INVAL);
    CHECK_FAILS(cmi_ofi_parse(nullptr, object, &len), -1, CMI_ERR_INVAL);
    CHECK_FAILS(cmi_ofi_parse(word, object, nullptr), -1, CMI_ERR_INVAL);
    CHECK_FAILS(cmi_ofi_parse("cmi1-naddr-", object, &len), -1, CMI_ERR_INVAL);
    CHECK_FAILS(cmi_ofi_parse("hello", object, &len), -1, CMI_ERR_INVAL);
    CHECK(has(text(), "damaged"));
  }
}

}  // namespace cmi::one_process::words_test
