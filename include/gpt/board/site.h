// What gpt-board answers: a page of all runs, one of each, streams of what happens, curves, and Prometheus' text. All of it is read-only, unless
// the board controls its runs: then a page of its own may tell them what to do.
#pragma once

#include <atomic>
#include <string>

#include "gpt/board/board.h"
#include "gpt/http/server.h"

namespace gpt::board {

class Site : public http::Handler {
 public:
  static constexpr int kMostStreams = 200;  // each holds one of the server's 256 threads

  // `token`: what must be in the address, or sent as 'Authorization: Bearer TOKEN'; empty: nothing.
  Site(Board& board, std::string token) : board_(board), token_(std::move(token)) {}

  void answer(const http::Request& request, http::Responder& responder) override;
  void refuse(const http::Refusal& refusal, http::Responder& responder) override;

 private:
  void require_right(const http::Request& request) const;
  void show_run(const std::string& name, bool has_others, http::Responder& responder) const;
  void stream(const http::Request& request, http::Responder& responder);
  void tell(const http::Request& request, const std::string& name, http::Responder& responder);

  Board& board_;
  const std::string token_;
  std::atomic<int> streams_ = 0;
};

}  // namespace gpt::board
