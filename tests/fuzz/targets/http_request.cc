// Reads what a client of HTTP sends before anybody knows who it is: the head of a request, its
// query, its JSON as each kind of request, and the place in a stream.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>

#include "common/base/check.h"
#include "server/http/connect_error.h"
#include "server/http/event_resume.h"
#include "server/http/json.h"
#include "server/http/request_head.h"
#include "server/http/rpc_methods.h"
#include "server/http/url.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/checkpoint.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::fuzz::http_request {
namespace {

const std::vector<http::RpcMethod>& Methods() {
  static const auto* methods = new std::vector<http::RpcMethod>(http::RpcMethods());
  return *methods;
}

void RunHead(absl::string_view bytes) {
  boost::beast::http::request_parser<boost::beast::http::string_body> parser;
  parser.header_limit(16 * 1024);
  parser.body_limit(4096);
  boost::system::error_code failed;
  parser.put(boost::asio::buffer(bytes.data(), bytes.size()), failed);
  if (failed || !parser.is_header_done()) return;
  http::Request request;
  if (http::ReadHead(parser.get().base(), request).has_value()) return;
  TY_CHECK(!request.path.empty() && request.path.front() == '/');
  // A request that is served has a body whose end everybody sees in the same place.
  TY_CHECK(!parser.chunked() && request.Header("transfer-encoding").empty());
  (void)http::ParseQuery(request.query);
  (void)http::HostOnly(request.Header("host"));
  (void)http::RangeBegin(request.Header("range"));
}

void RunJson(const http::RpcMethod& method, absl::string_view json) {
  const auto message = http::NewMessage(*method.descriptor->input_type());
  const absl::Status parsed = http::ParseJson(json, *message);
  if (!parsed.ok()) {
    TY_CHECK(!http::ErrorJson(parsed).empty());
    return;
  }
  // A value that was read can be written, and says the same then.
  const auto text = http::ToJson(*message);
  if (!text.ok()) return;
  const auto again = http::NewMessage(*method.descriptor->input_type());
  TY_CHECK_OK(http::ParseJson(*text, *again));
}

void RunCursor(const http::RpcMethod& method, absl::string_view id) {
  const auto request = http::NewMessage(*method.descriptor->input_type());
  const auto cursor = http::MakeCursor(method, *request);
  if (cursor == nullptr || !cursor->Resume(id)) return;
  TY_CHECK(cursor->Request() != nullptr);
  if (cursor->AttemptToKnow().has_value()) cursor->SetRanks(1);
  TY_CHECK(cursor->Request() != nullptr);
  const auto response = http::NewMessage(*method.descriptor->output_type());
  (void)cursor->Take(*response);
  (void)cursor->Id();
}

// The first byte chooses what is read, and the second one the kind of request.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const size_t kind = input.Below(3);
  const http::RpcMethod& method = Methods()[input.Byte() % Methods().size()];
  const absl::string_view rest = input.Take(bytes.size());
  if (kind == 0) RunHead(rest);
  if (kind == 1) RunJson(method, rest);
  if (kind == 2) RunCursor(method, rest);
}

const Registration kTarget({.name = "http_request", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::http_request
