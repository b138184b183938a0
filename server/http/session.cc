// Everything but the calls of handlers happens on the thread of the io_context.
#include "server/http/session.h"

#include <sys/socket.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/optional.hpp>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/mutex.h"
#include "common/base/strings.h"
#include "server/http/connect_error.h"
#include "server/http/request_exchange.h"
#include "server/http/request_head.h"
#include "server/http/sign_in.h"
#include "server/http/url.h"

namespace trainyard::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using Protocol = asio::local::stream_protocol;

// A body that grows with what comes. The one of Beast reserves what the client announces.
struct ReceivedBody {
  using value_type = std::string;
  class reader {  // NOLINT(readability-identifier-naming): Beast looks for this name
   public:
    template <bool kIsRequest, class Fields>
    reader(beast::http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      const size_t before = body_.size();
      body_.resize(before + beast::buffer_bytes(buffers));
      return asio::buffer_copy(asio::buffer(&body_[before], body_.size() - before), buffers);
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};
using Parser = beast::http::request_parser<ReceivedBody>;

// The bytes that a client may send after an answer that ends the connection, before it is closed.
constexpr absl::Duration kLingerTime = absl::Seconds(2);
constexpr size_t kLingerBytesMax = size_t{8} << 20;
constexpr size_t kBufferBytes = 64 * 1024;
constexpr size_t kBodyBytesPerSecond = 64 * 1024;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

std::chrono::milliseconds Chrono(absl::Duration duration) {
  return absl::ToChronoMilliseconds(duration);
}

class Connection : public Session,
                   public ExchangeHost,
                   public std::enable_shared_from_this<Connection> {
 public:
  Connection(Arrival arrival, SessionEnv& env, std::function<void()> closed)
      : arrival_(std::move(arrival)),
        env_(env),
        closed_(std::move(closed)),
        stream_(env.io),
        timer_(env.io),
        idle_timer_(env.io),
        is_user_(!arrival_.peer.user.empty()) {}

  void Start();
  void Stop() override;
  void Close() override;
  bool is_admitted() const override { return has_asked_ && !IsStranger(); }
  bool is_idle() const override { return is_waiting_; }

  asio::io_context& io() override { return env_.io; }
  std::shared_ptr<grpc::Channel> channel() override {
    const MutexLock lock(&channel_mutex_);
    if (channel_ == nullptr) channel_ = env_.connect(arrival_);
    return channel_;
  }
  bool IsServing(const Exchange* exchange) const override { return current_.get() == exchange; }
  void Answer(Response response) override;
  void Begin(Response head) override;
  void Send(std::string part, std::function<void(bool)> sent) override;
  void End(bool is_complete) override;
  void After(absl::Duration delay, std::function<void()> due) override;

 private:
  struct Part {
    std::string text;
    std::function<void(bool)> sent;
  };
  using Step = void (Connection::*)(const error_code&, size_t);
  auto On(Step step) {
    return [self = shared_from_this(), step](const error_code& error, size_t bytes) {
      if (!self->is_closed_) ((*self).*step)(error, bytes);
    };
  }

  void Read();
  void OnHead(const error_code& error, size_t bytes);
  // Returns the reason to refuse a request whose head has come.
  std::optional<Refusal> Judge();
  // Has the services look at the token or the certificate before anything of the body is read.
  void CheckCaller();
  void OnCallerIsKnown();
  void ReadBody();
  void ReadMore();
  void OnContinue(const error_code& error, size_t bytes);
  void OnBody(const error_code& error, size_t bytes);
  void Serve();
  // Answer a request that no handler sees, and end the connection.
  void Refuse(const Refusal& refusal);
  void AnswerAndEnd(const Response& response);
  // Notices that the client goes away while a handler works.
  void WatchForEnd();
  void Write(std::string text, std::function<void(bool)> sent);
  void WriteNext();
  void OnWritten(const error_code& error, size_t bytes);
  void FinishAnswer();
  void SendWhenIdle();
  void Linger();
  void OnLinger(const error_code& error, size_t bytes);
  bool IsStranger() const { return arrival_.is_known != nullptr && !*arrival_.is_known; }

  Arrival arrival_;
  SessionEnv& env_;
  std::function<void()> closed_;
  beast::basic_stream<Protocol> stream_;
  asio::steady_timer timer_;       // of After
  asio::steady_timer idle_timer_;  // of SendWhenIdle
  const bool is_user_;             // whom the kernel has named
  // The header Authorization that the services have accepted last.
  std::optional<std::string> accepted_token_;
  beast::flat_buffer buffer_{kBufferBytes};
  std::optional<Parser> parser_;
  Request request_;
  std::shared_ptr<RequestExchange> current_;
  const absl::Duration started_ = Clock::Real()->Uptime();
  std::unique_ptr<BodyBytes::Share> share_;  // of the body that is being received
  bool is_waiting_ = false;                  // for a request, or the rest of its body
  bool has_asked_ = false;
  bool is_head_ = false;  // the request is one for a head, whose answer must not have a body
  bool is_stopping_ = false;
  bool is_closed_ = false;
  bool keeps_alive_ = false;
  bool is_chunked_ = false;
  std::string idle_part_;
  std::deque<Part> parts_;  // the first one is being written
  size_t written_ = 0;      // of it
  size_t lingered_ = 0;
  Mutex channel_mutex_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(channel_mutex_);
};

void Connection::Start() {
  error_code failed;
  stream_.socket().assign(Protocol(), arrival_.socket.get(), failed);
  if (failed) return Close();
  (void)arrival_.socket.release();  // the stream owns it now
  Read();
}

void Connection::Stop() {
  is_stopping_ = true;
  if (current_ == nullptr && parts_.empty()) Close();
}

void Connection::Close() {
  if (std::exchange(is_closed_, true)) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  timer_.cancel();
  idle_timer_.cancel();
  stream_.close();
  share_ = nullptr;
  std::deque<Part> parts;
  parts.swap(parts_);
  const std::shared_ptr<RequestExchange> gone = std::exchange(current_, nullptr);
  for (const Part& part : parts) {
    if (part.sent) part.sent(false);
  }
  if (gone != nullptr) gone->SetGone();
  if (closed_) std::exchange(closed_, nullptr)();
}

void Connection::Read() {
  if (is_stopping_) return Close();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(env_.limits.header_bytes));
  parser_->body_limit(env_.limits.body_bytes);
  is_waiting_ = true;
  is_head_ = false;
  stream_.expires_after(Chrono(env_.limits.head_timeout));
  beast::http::async_read_header(stream_, buffer_, *parser_, On(&Connection::OnHead));
}

void Connection::OnHead(const error_code& error, size_t) {
  using Error = beast::http::error;
  is_waiting_ = false;
  if (error == Error::header_limit || error == Error::buffer_overflow) {
    return Refuse(
        {431, "HEADERS_TOO_LARGE",
         absl::StrCat("the headers have more than ", env_.limits.header_bytes, " bytes")});
  }
  if (error == Error::body_limit) {
    return Refuse({413, "BODY_TOO_LARGE",
                   absl::StrCat("the body has more than ", env_.limits.body_bytes, " bytes")});
  }
  const bool is_of_http = error.category() == make_error_code(Error::bad_method).category();
  // The client has gone, was too slow, or has nothing more to ask.
  if (error && (!is_of_http || error == Error::end_of_stream || error == Error::partial_message)) {
    return Close();
  }
  if (error) {
    return Refuse({400, "INVALID_REQUEST",
                   absl::StrCat("this is no request of HTTP/1.1: ", error.message())});
  }
  is_head_ = parser_->get().method() == beast::http::verb::head;
  request_ = Request();
  std::optional<Refusal> refusal = ReadHead(parser_->get().base(), request_);
  if (!refusal.has_value() && env_.guard) {
    std::optional<Response> answer = env_.guard(arrival_.peer, request_);
    if (answer.has_value()) return AnswerAndEnd(*answer);
  }
  if (!refusal.has_value()) refusal = Judge();
  if (refusal.has_value()) return Refuse(*refusal);
  const bool has_body = parser_->content_length().value_or(0) > 0;
  const bool is_checked =
      is_user_ || accepted_token_ == request_.Header("authorization") || IsSignIn(request_);
  if (has_body && !is_checked) return CheckCaller();
  ReadBody();
}

std::optional<Refusal> Connection::Judge() {
  const bool is_remote = !arrival_.peer.address.empty();
  const std::string host = HostOnly(request_.Header("host"));
  // A page of another site whose name was bound to this address would name that site.
  if (is_remote && !IsIpAddress(host) && !env_.is_host(host)) {
    return Refusal{421, "WRONG_HOST",
                   absl::StrCat("this server is not '", PlainText(host, 100),
                                "'; name a host of its certificate")};
  }
  const bool has_body = parser_->content_length().value_or(0) > 0;
  const bool may_be_known = is_user_ || !arrival_.peer.worker.empty() ||
                            !request_.Header("authorization").empty() || IsSignIn(request_);
  if (has_body && !may_be_known) {
    return Refusal{401, "NOT_SIGNED_IN",
                   "you are not signed in; send a token as `Authorization: Bearer tyk_...`"};
  }
  return std::nullopt;
}

void Connection::CheckCaller() {
  stream_.expires_never();
  // The user for whom an administrator acts is left out: the audit log has it with the call itself.
  Request asking;
  asking.headers.emplace("authorization", request_.Header("authorization"));
  keeps_alive_ = false;  // after an answer that refuses the caller
  current_ = std::make_shared<RequestExchange>(shared_from_this(), env_.exchanges,
                                               std::move(asking), Body());
  // The thread that brings the answer must not end the connection, so it never holds it.
  env_.check_caller(current_, [weak = weak_from_this(),
                               exchange = ExchangePtr(current_)](const absl::Status& status) {
    if (!status.ok()) return exchange->Answer(ErrorResponse(status));
    exchange->After(absl::ZeroDuration(), [weak] {
      if (const auto self = weak.lock()) self->OnCallerIsKnown();
    });
  });
}

void Connection::OnCallerIsKnown() {
  if (is_closed_) return;
  current_ = nullptr;
  if (is_stopping_) return Close();
  accepted_token_ = std::string(request_.Header("authorization"));
  has_asked_ = true;
  ReadBody();
}

void Connection::ReadBody() {
  is_waiting_ = true;
  share_ = std::make_unique<BodyBytes::Share>(env_.body_bytes, arrival_.client);
  const uint64_t seconds = parser_->content_length().value_or(0) / kBodyBytesPerSecond;
  stream_.expires_after(
      Chrono(env_.limits.body_timeout + absl::Seconds(static_cast<int64_t>(seconds))));
  if (absl::EqualsIgnoreCase(request_.Header("expect"), "100-continue")) {
    asio::async_write(stream_, asio::buffer(kContinue, sizeof(kContinue) - 1),
                      On(&Connection::OnContinue));
  } else {
    OnContinue({}, 0);
  }
}

void Connection::OnContinue(const error_code& error, size_t) {
  if (error) return Close();
  ReadMore();
}

void Connection::ReadMore() {
  if (parser_->is_done()) return Serve();
  beast::http::async_read_some(stream_, buffer_, *parser_, On(&Connection::OnBody));
}

void Connection::OnBody(const error_code& error, size_t) {
  if (error) return Close();
  if (!share_->GrowTo(parser_->get().body().size())) {
    parser_->get().body() = std::string();
    share_ = nullptr;
    return Refuse({503, "SERVER_BUSY",
                   "too many bodies are being received, of yours or of all; try again soon"});
  }
  ReadMore();
}

void Connection::Serve() {
  stream_.expires_never();
  is_waiting_ = false;
  has_asked_ = true;
  keeps_alive_ = parser_->keep_alive();
  is_chunked_ = false;
  idle_part_.clear();
  Body body = {std::move(parser_->get().body()), std::move(share_)};
  current_ = std::make_shared<RequestExchange>(shared_from_this(), env_.exchanges,
                                               std::move(request_), std::move(body));
  WatchForEnd();
  env_.routes.Handle(current_);
}

void Connection::Refuse(const Refusal& refusal) {
  const auto code = refusal.status == 401   ? absl::StatusCode::kUnauthenticated
                    : refusal.status == 503 ? absl::StatusCode::kUnavailable
                                            : absl::StatusCode::kInvalidArgument;
  AnswerAndEnd(ErrorResponse(refusal.status, MakeError(code, refusal.reason, refusal.message)));
}

void Connection::AnswerAndEnd(const Response& response) {
  Write(absl::StrCat(HeadText(response, false, false), is_head_ ? "" : response.body),
        [self = shared_from_this()](bool is_there) {
          if (is_there) self->Linger();
        });
}

void Connection::WatchForEnd() {
  const std::weak_ptr<RequestExchange> watched = current_;
  stream_.socket().async_wait(
      Protocol::socket::wait_read, [self = shared_from_this(), watched](const error_code& error) {
        const auto exchange = watched.lock();
        if (error || self->is_closed_ || exchange == nullptr || self->current_ != exchange) return;
        char next = 0;
        const ssize_t got =
            recv(self->stream_.socket().native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
        // Whatever the client sends before it has its answer has to wait.
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) self->Close();
      });
}

void Connection::Answer(Response response) {
  const bool has_time = Clock::Real()->Uptime() - started_ < env_.limits.stranger_time;
  const bool may_stay = !IsStranger() || (response.status != 401 && has_time);
  // A channel whose socket was closed does not come back, but a client does.
  keeps_alive_ = keeps_alive_ && may_stay && !is_stopping_ && response.status != 503;
  Write(absl::StrCat(HeadText(response, false, keeps_alive_), is_head_ ? "" : response.body),
        [self = shared_from_this()](bool is_there) {
          if (is_there) self->FinishAnswer();
        });
}

void Connection::Begin(Response head) {
  const bool has_size = head.idle_part.empty();
  is_chunked_ = !has_size && parser_->get().version() == 11;
  idle_part_ = head.idle_part;
  keeps_alive_ = false;  // whoever follows a stream opens a connection for it
  Write(HeadText(head, is_chunked_, false), nullptr);
  SendWhenIdle();
}

void Connection::Send(std::string part, std::function<void(bool)> sent) {
  if (is_chunked_) part = absl::StrCat(absl::StrFormat("%x\r\n", part.size()), part, "\r\n");
  Write(std::move(part), std::move(sent));
}

void Connection::End(bool is_complete) {
  if (!is_complete) return Close();
  Write(is_chunked_ ? "0\r\n\r\n" : "", [self = shared_from_this()](bool is_there) {
    if (is_there) self->FinishAnswer();
  });
}

void Connection::After(absl::Duration delay, std::function<void()> due) {
  timer_.expires_after(Chrono(delay));
  timer_.async_wait([due = std::move(due)](const error_code& error) {
    if (!error) due();
  });
}

void Connection::SendWhenIdle() {
  if (idle_part_.empty()) return;
  idle_timer_.expires_after(Chrono(env_.limits.idle_interval));
  idle_timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (error || self->is_closed_ || self->current_ == nullptr) return;
    if (self->parts_.empty()) self->Send(self->idle_part_, nullptr);
    self->SendWhenIdle();
  });
}

void Connection::Write(std::string text, std::function<void(bool)> sent) {
  parts_.push_back({std::move(text), std::move(sent)});
  if (parts_.size() == 1) WriteNext();
}

void Connection::WriteNext() {
  const Part& part = parts_.front();
  const size_t size = std::min(part.text.size() - written_, env_.limits.write_bytes);
  stream_.expires_after(Chrono(env_.limits.write_timeout));
  asio::async_write(stream_, asio::buffer(part.text.data() + written_, size),
                    On(&Connection::OnWritten));
}

void Connection::OnWritten(const error_code& error, size_t bytes) {
  if (error) return Close();
  written_ += bytes;
  if (written_ < parts_.front().text.size()) return WriteNext();
  const Part part = std::move(parts_.front());
  parts_.pop_front();
  written_ = 0;
  stream_.expires_never();
  if (!parts_.empty()) WriteNext();
  if (part.sent) part.sent(true);
}

void Connection::FinishAnswer() {
  timer_.cancel();
  idle_timer_.cancel();
  current_ = nullptr;
  if (keeps_alive_) return Read();
  Linger();
}

// Bytes that are still under way to the client would be lost if the socket were closed while there
// is something that it has sent and nobody has read.
void Connection::Linger() {
  error_code ignored;
  stream_.socket().shutdown(Protocol::socket::shutdown_send, ignored);
  stream_.expires_after(Chrono(kLingerTime));
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kBufferBytes), On(&Connection::OnLinger));
}

void Connection::OnLinger(const error_code& error, size_t bytes) {
  lingered_ += bytes;
  if (error || lingered_ > kLingerBytesMax) return Close();
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kBufferBytes), On(&Connection::OnLinger));
}

}  // namespace

std::shared_ptr<Session> StartSession(Arrival arrival, SessionEnv& env,
                                      std::function<void()> closed) {
  auto connection = std::make_shared<Connection>(std::move(arrival), env, std::move(closed));
  connection->Start();
  return connection;
}

}  // namespace trainyard::http
