// Who may ask: what keeps pages of other sites, and people without the key, from a server that a browser on this machine reaches.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gpt/http/request.h"

namespace gpt::http {

// Why a request gets no answer: it comes from a page of another site that a browser shows, by this server's address or by a name of its own
// that leads here. Nothing where it may ask. `key`: what a server with `has_key` wants to be sent, such as "an API key".
std::optional<std::string> why_foreign(const Request& request, bool has_key, std::string_view key);

// Whether they are equal, in a time that tells nothing about where they differ.
bool is_same_key(std::string_view given, std::string_view key);

// The key of 'Bearer KEY', of which the scheme may be in any case (RFC 9110, section 11.1).
std::string_view bearer_key(std::string_view authorization);

// A path, or a part of a query, as it was before %2F and the like were written in it.
std::string unescaped(std::string_view text);

// The other way round: letters, digits, '-', '_', '.' and '~' stay as they are.
std::string escaped(std::string_view text);

// What follows NAME= in NAME=VALUE&NAME=VALUE, unescaped; nothing where the name is not there.
std::optional<std::string> value_in_query(std::string_view query, std::string_view name);

}  // namespace gpt::http
