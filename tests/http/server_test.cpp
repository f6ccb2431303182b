#include "gpt/http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpt/core/error.h"

namespace gpt::http {
namespace {

using namespace std::chrono_literals;

class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send_no_more() { ::shutdown(socket_, SHUT_WR); }
  void send(const std::string& text) { ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  std::string read_until(const std::string& end) {
    char bytes[4096];
    while (received_.find(end) == std::string::npos || end.empty()) {
      const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
      if (count <= 0) break;
      received_.append(bytes, count);
    }
    const size_t at = end.empty() ? std::string::npos : received_.find(end);
    const std::string result = received_.substr(0, at == std::string::npos ? at : at + end.size());
    received_.erase(0, result.size());
    return result;
  }
  std::string read_all() { return read_until(""); }

 private:
  const int socket_;
  std::string received_;
};

struct Echo : Handler {
  void answer(const Request& request, Responder& responder) override {
    if (request.path == "/throw") throw std::runtime_error("it broke\nat length");
    if (request.path == "/stream") {
      responder.begin_stream("text/plain");
      for (const char* piece : {"one ", "", "two"}) EXPECT_TRUE(responder.write(piece));
      return responder.end_stream();
    }
    if (request.path == "/endless") {
      responder.begin_stream("text/plain");
      while (responder.write(std::string(10'000, 'x'))) {}
      ++left;
      return;
    }
    if (request.path == "/wait") {
      ++waiting;
      while (!is_released && !responder.client_has_gone()) std::this_thread::sleep_for(1ms);
      if (!is_released) return void(++left);
    }
    responder.send(200, "text/plain", request.method + " " + request.body, {{"X-Path", request.path}});
  }
  void refuse(const Refusal& refusal, Responder& responder) override {
    responder.send(refusal.status(), "text/plain", refusal.what());
  }

  std::atomic<int> left{0}, waiting{0};
  std::atomic<bool> is_released{false};
};

class ServerTest : public testing::Test {
 protected:
  uint16_t start(const Limits& limits = {}) {
    server_ = std::make_unique<Server>("127.0.0.1", 0, limits, echo_);
    return server_->port();
  }

  Echo echo_;
  std::unique_ptr<Server> server_;
};

const std::string kGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(ServerTest, AnswersOneRequestAfterTheOtherOverAConnection) {
  Client client(start());
  client.send(kGet + "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");  // the second is cut anywhere
  EXPECT_TRUE(client.read_until("GET ").starts_with("HTTP/1.1 200 OK\r\n"));
  client.send("lo");
  const std::string second = client.read_until("POST hello");
  EXPECT_NE(second.find("X-Path: /b\r\n"), std::string::npos) << second;
  EXPECT_NE(second.find("Connection: keep-alive\r\n"), std::string::npos);
  client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(client.read_all().find("Connection: close\r\n"), std::string::npos);
}

TEST_F(ServerTest, AConnectionHasItsNumberOfRequests) {
  Client client(start({.requests = 2}));
  client.send(kGet + kGet + kGet);
  const std::string all = client.read_all();
  EXPECT_EQ(all.find("X-Path", all.rfind("X-Path") + 1), std::string::npos);
  EXPECT_NE(all.find("X-Path"), all.rfind("X-Path"));
}

TEST_F(ServerTest, StreamsInChunksToWhoUnderstandsThem) {
  const uint16_t port = start();
  Client client(port), older(port);
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.read_until("0\r\n\r\n").ends_with("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"));
  older.send("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(older.read_all().ends_with("Connection: close\r\n\r\none two"));
}

TEST_F(ServerTest, SendsNoBodyAfterTheHeadersOfOne) {
  Client client(start());
  client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n" + kGet);
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 5\r\n"), std::string::npos) << head;  // of "HEAD ", which does not come
  EXPECT_TRUE(client.read_until("GET ").starts_with("HTTP/1.1 200 OK\r\n"));
  client.send("HEAD /a HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(client.read_all().ends_with("\r\n\r\n"));  // a refusal has none either
}

TEST_F(ServerTest, TakesABodyInChunks) {
  Client client(start({.body_bytes = 10}));
  const std::string head = "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n";
  client.send(head + "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("5\r\nhel");
  client.send("lo\r\n5\r\nworld\r\n0\r\n\r\n" + kGet);  // with the next request
  EXPECT_NE(client.read_until("POST helloworld").find("X-Path: /b\r\n"), std::string::npos);
  client.read_until("GET ");
  client.send(head + "\r\nb\r\n");
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 413 "));
}

// It may be half-closed by a client that waits for its answer, or closed by one that does not.
TEST_F(ServerTest, AsksAClientThatSendsNoMore) {
  const uint16_t port = start({.silence = 0ms});
  const std::string wait = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";
  Client client(port);
  client.send(wait);
  client.send_no_more();
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  std::make_unique<Client>(port)->send(wait);
  while (echo_.left == 0) std::this_thread::sleep_for(1ms);
  echo_.is_released = true;
  EXPECT_TRUE(client.read_all().ends_with("GET "));
}

TEST_F(ServerTest, SaysThatARequestIsNotWhole) {
  Client client(start());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1");
  client.send_no_more();
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("the request ended before it was complete"))
      << answer;
}

TEST_F(ServerTest, WantsTheBodyThatWaits) {
  Client client(start());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("hi");
  EXPECT_TRUE(client.read_until("POST hi").ends_with("POST hi"));
}

// Each is told what was wrong, although it has sent more than was read.
TEST_F(ServerTest, RefusesWhatIsTooMuch) {
  const uint16_t port = start({.head_bytes = 200, .body_bytes = 100});
  const auto answer = [port](const std::string& request) {
    Client client(port);
    client.send(request);
    return client.read_all();
  };
  EXPECT_TRUE(answer("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(100'000, 'y')).starts_with("HTTP/1.1 431 "));
  const std::string body(100'000, 'z');
  EXPECT_TRUE(
      answer("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + body).starts_with("HTTP/1.1 413 "));
  EXPECT_TRUE(answer("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
  EXPECT_TRUE(answer("GET /throw HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ends_with("\r\n\r\nit broke"));
}

TEST_F(ServerTest, WaitsForNobodyForLong) {
  const uint16_t port = start({.request = 50ms, .write = 50ms});
  Client slow(port), endless(port);
  slow.send("GET / HT");
  endless.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");  // and never reads
  EXPECT_TRUE(slow.read_all().starts_with("HTTP/1.1 408 "));
  while (echo_.left == 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(Client(start({.idle = 50ms})).read_all(), "");
}

TEST_F(ServerTest, TakesSoManyConnectionsAndLetsTheRestWait) {
  const uint16_t port = start({.connections = 2, .rest = 0ms});
  Client first(port), second(port);
  for (Client* client : {&first, &second}) client->send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  while (echo_.waiting < 2) std::this_thread::sleep_for(1ms);
  Client third(port);
  third.send(kGet);
  std::atomic<bool> is_answered{false};
  std::thread waiting([&] {
    third.read_until("GET ");
    is_answered = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(is_answered);
  echo_.is_released = true;
  EXPECT_TRUE(first.read_until("GET ").ends_with("GET ") && second.read_until("GET ").ends_with("GET "));
  waiting.join();
}

// Connections without a request keep nobody out: the one that has waited longest makes room.
TEST_F(ServerTest, ClosesTheLongestIdleConnectionForAnother) {
  const uint16_t port = start({.connections = 2, .rest = 0ms});
  Client idle(port), half(port);
  half.send("GET / HT");
  Client third(port);
  third.send(kGet);
  EXPECT_TRUE(third.read_until("GET ").starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(idle.read_all(), "");
  Client fourth(port);
  fourth.send(kGet);
  EXPECT_TRUE(fourth.read_until("GET ").starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(half.read_all().starts_with("HTTP/1.1 400 "));
}

TEST_F(ServerTest, StopsBesideIdleAndEndlessConnections) {
  const uint16_t port = start();
  Client idle(port), endless(port);
  endless.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n");
  endless.read_until("\r\n\r\n");
  server_->stop();
  EXPECT_EQ(echo_.left, 1);
  EXPECT_EQ(idle.read_all(), "");
}

TEST_F(ServerTest, SaysWhyItCannotListen) {
  const uint16_t port = start();
  EXPECT_THROW(Server("127.0.0.1", port, {}, echo_), Error);
  EXPECT_THROW(Server("no.such.name.invalid", 0, {}, echo_), Error);
}

TEST(Loopback, IsThisMachineAlone) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host :
       {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "", "localhost.example.org", "127.0.0.1.example.org"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace gpt::http
