// ycsb_servers: the same mixes, keys and values as ycsb, against a server of redis or of memcached
// on this machine, by so many clients with a connection each, over TCP.
//
//   ycsb_servers redis|memcached PORT CLIENTS MIX RECORDS OPERATIONS PASSES
//
// run-servers starts the server. A request waits for its answer, as one of ycsb does.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "zipf.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kValueSize = 100;

struct Wanted {
  bool redis;
  uint16_t port;
  uint64_t clients, records, operations, passes;
  double updates;
};

// A connection that is read line by line, and by bytes where a value is.
class Connection {
 public:
  explicit Connection(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int one = 1;
    const timeval bound = {20, 0};
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("no server at the port");
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { ::close(socket_); }
  void send(const std::string& request) {
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t n = ::send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) throw std::runtime_error("the server has gone");
      sent += static_cast<size_t>(n);
    }
  }
  std::string line() {
    size_t end = 0;
    while ((end = buffer_.find("\r\n")) == std::string::npos) more();
    return take(end, 2);
  }
  std::string bytes(size_t count) {
    while (buffer_.size() < count + 2) more();
    return take(count, 2);
  }

 private:
  std::string take(size_t count, size_t behind) {
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count + behind);
    return taken;
  }
  void more() {
    char got[4096];
    const ssize_t n = ::recv(socket_, got, sizeof got, 0);
    if (n <= 0) throw std::runtime_error("the server has gone, or does not answer");
    buffer_.append(got, static_cast<size_t>(n));
  }
  int socket_;
  std::string buffer_;
};

class Client {
 public:
  Client(const Wanted& wanted, uint64_t number)
      : wanted_(wanted), connection_(wanted.port), zipf_(wanted.records, number + 1), me_(number) {}
  void put(uint64_t record, uint64_t number) {
    const std::string key = kv::key_of(record);
    const std::string value = kv::value_of(record, me_, number, kValueSize);
    const std::string size = std::to_string(value.size());
    if (wanted_.redis) {
      connection_.send("*3\r\n$3\r\nSET\r\n$" + std::to_string(key.size()) + "\r\n" + key +
                       "\r\n$" + size + "\r\n" + value + "\r\n");
      expect(connection_.line() == "+OK");
    } else {
      connection_.send("set " + key + " 0 0 " + size + "\r\n" + value + "\r\n");
      expect(connection_.line() == "STORED");
    }
  }
  void get(uint64_t record) {
    const std::string key = kv::key_of(record);
    if (wanted_.redis) {
      connection_.send("*2\r\n$3\r\nGET\r\n$" + std::to_string(key.size()) + "\r\n" + key + "\r\n");
      expect(connection_.line() == "$" + std::to_string(kValueSize));
    } else {
      connection_.send("get " + key + "\r\n");
      expect(connection_.line() == "VALUE " + key + " 0 " + std::to_string(kValueSize));
    }
    expect(kv::belongs(record, connection_.bytes(kValueSize)));
    if (!wanted_.redis) expect(connection_.line() == "END");
  }
  void pass() {
    for (uint64_t i = 0; i < wanted_.operations; ++i) {
      const uint64_t record = zipf_.next();
      if (wanted_.updates > 0 && zipf_.chance() < wanted_.updates) {
        put(record, ++number_);
      } else {
        get(record);
      }
    }
  }

 private:
  static void expect(bool right) {
    if (!right) throw std::runtime_error("an answer is wrong");
  }
  const Wanted& wanted_;
  Connection connection_;
  kv::Zipf zipf_;
  uint64_t me_, number_ = 0;
};

int run(const Wanted& wanted, const char* mix) {
  std::vector<std::unique_ptr<Client>> clients;
  for (uint64_t i = 0; i < wanted.clients; ++i) {
    clients.push_back(std::make_unique<Client>(wanted, i));
  }
  for (uint64_t record = 0; record < wanted.records; ++record) clients[0]->put(record, 0);
  std::vector<double> seconds(wanted.passes * wanted.clients);
  std::barrier gate(static_cast<std::ptrdiff_t>(wanted.clients));
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < wanted.clients; ++i) {
    threads.emplace_back([&, i] {
      for (uint64_t pass = 0; pass < wanted.passes; ++pass) {
        gate.arrive_and_wait();
        const auto begin = Clock::now();
        try {
          clients[i]->pass();
        } catch (const std::exception& e) {
          std::fprintf(stderr, "ycsb_servers: %s\n", e.what());
          std::_Exit(1);
        }
        seconds[pass * wanted.clients + i] =
            std::chrono::duration<double>(Clock::now() - begin).count();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t pass = 0; pass < wanted.passes; ++pass) {
    const auto first = seconds.begin() + static_cast<std::ptrdiff_t>(pass * wanted.clients);
    const double slowest =
        *std::max_element(first, first + static_cast<std::ptrdiff_t>(wanted.clients));
    std::printf("ycsb_%s_%lu pass %lu: %.0f operations/s\n", mix, wanted.clients, pass + 1,
                static_cast<double>(wanted.clients * wanted.operations) / slowest);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> given(argv + 1, argv + argc);
  try {
    if (given.size() != 7) throw std::invalid_argument("seven arguments");
    const double updates = given[3] == "a" ? 0.5 : given[3] == "b" ? 0.05 : 0;
    const Wanted wanted = {given[0] == "redis",
                           static_cast<uint16_t>(std::stoul(given[1])),
                           std::stoul(given[2]),
                           std::stoul(given[4]),
                           std::stoul(given[5]),
                           std::stoul(given[6]),
                           updates};
    if (wanted.clients == 0 || wanted.records < 2) throw std::invalid_argument("too few");
    return run(wanted, given[3].c_str());
  } catch (const std::invalid_argument&) {
    std::fprintf(stderr,
                 "usage: ycsb_servers redis|memcached PORT CLIENTS a|b|c RECORDS OPERATIONS "
                 "PASSES\n");
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ycsb_servers: %s\n", e.what());
    return 1;
  }
}
