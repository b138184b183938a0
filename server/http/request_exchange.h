// Carries what a handler says to the thread of its connection.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "server/http/exchange.h"

namespace trainyard::http {

// The connection of an exchange. All calls but those of `io` and `channel` are made on its thread.
class ExchangeHost {
 public:
  virtual ~ExchangeHost() = default;
  virtual boost::asio::io_context& io() = 0;
  virtual std::shared_ptr<grpc::Channel> channel() = 0;
  // Returns true as long as the client waits for what the exchange has to say.
  virtual bool IsServing(const Exchange* exchange) const = 0;
  // See Exchange.
  virtual void Answer(Response response) = 0;
  virtual void Begin(Response head) = 0;
  virtual void Send(std::string part, std::function<void(bool)> sent) = 0;
  virtual void End(bool is_complete) = 0;
  virtual void After(absl::Duration delay, std::function<void()> due) = 0;
};

// It keeps the connection alive, and says nothing any more once another request is served. It
// counts itself in `count` until it has let the connection go.
class RequestExchange : public Exchange, public std::enable_shared_from_this<RequestExchange> {
 public:
  RequestExchange(std::shared_ptr<ExchangeHost> host, std::atomic<int64_t>& count, Request request,
                  Body body);
  ~RequestExchange() override;

  const Request& request() const override { return request_; }
  size_t body_size() const override { return body_.text.size(); }
  Body TakeBody() override { return std::exchange(body_, Body()); }
  std::shared_ptr<grpc::Channel> channel() override { return host_->channel(); }
  void Answer(Response response) override;
  void Begin(Response head) override;
  void Send(std::string part, std::function<void(bool is_there)> sent) override;
  void End(bool is_complete) override;
  void After(absl::Duration delay, std::function<void()> due) override;
  void OnGone(std::function<void()> gone) override;

  // Tells the handler that nobody waits for its answer.
  void SetGone();

 private:
  // Calls a function of the connection on its thread.
  template <typename F>
  void Post(F function);

  std::shared_ptr<ExchangeHost> host_;
  std::atomic<int64_t>& count_;
  const Request request_;
  Body body_;  // only the handler uses it
  Mutex mutex_;
  bool is_gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> gone_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::http
