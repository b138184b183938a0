// Handlers may answer from any thread, so what they say is posted.
#include "server/http/request_exchange.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace trainyard::http {

template <typename F>
void RequestExchange::Post(F function) {
  boost::asio::post(host_->io(),
                    [self = shared_from_this(), function = std::move(function)]() mutable {
                      if (self->host_->IsServing(self.get())) function(*self->host_);
                    });
}

RequestExchange::RequestExchange(std::shared_ptr<ExchangeHost> host, std::atomic<int64_t>& count,
                                 Request request, Body body)
    : host_(std::move(host)), count_(count), request_(std::move(request)), body_(std::move(body)) {
  ++count_;
}

// The connection belongs to its thread, which also ends it. The last exchange may be let go by any
// thread, and the door waits until that is done.
RequestExchange::~RequestExchange() {
  body_ = Body();  // the door that counts its bytes may be gone once the count is
  boost::asio::io_context& io = host_->io();
  boost::asio::post(io, [host = std::move(host_), &count = count_]() mutable {
    host.reset();
    --count;
  });
}

void RequestExchange::Answer(Response response) {
  Post([response = std::move(response)](ExchangeHost& host) mutable {
    host.Answer(std::move(response));
  });
}

void RequestExchange::Begin(Response head) {
  Post([head = std::move(head)](ExchangeHost& host) mutable { host.Begin(std::move(head)); });
}

void RequestExchange::Send(std::string part, std::function<void(bool)> sent) {
  boost::asio::post(host_->io(), [self = shared_from_this(), part = std::move(part),
                                  sent = std::move(sent)]() mutable {
    if (!self->host_->IsServing(self.get())) return sent(false);
    self->host_->Send(std::move(part), std::move(sent));
  });
}

void RequestExchange::End(bool is_complete) {
  Post([is_complete](ExchangeHost& host) { host.End(is_complete); });
}

void RequestExchange::After(absl::Duration delay, std::function<void()> due) {
  Post([delay, due = std::move(due)](ExchangeHost& host) mutable {
    host.After(delay, std::move(due));
  });
}

void RequestExchange::OnGone(std::function<void()> gone) {
  {
    const MutexLock lock(&mutex_);
    if (!is_gone_) {
      gone_ = std::move(gone);
      return;
    }
  }
  gone();
}

void RequestExchange::SetGone() {
  std::function<void()> gone;
  {
    const MutexLock lock(&mutex_);
    is_gone_ = true;
    gone.swap(gone_);
  }
  if (gone) gone();
}

}  // namespace trainyard::http
