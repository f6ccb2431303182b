// Runs in the text format that Prometheus reads (version 0.0.4).
#pragma once

#include <string>
#include <vector>

#include "gpt/board/followed_run.h"

namespace gpt::board {

constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

std::string prometheus_text(const std::vector<RunRow>& runs);

}  // namespace gpt::board
