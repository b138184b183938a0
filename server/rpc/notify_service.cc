// Converts between the messages and the store of notifications.
#include "server/rpc/notify_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/notify/addresses.h"
#include "server/notify/derive.h"
#include "server/notify/message.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/decisions.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

constexpr int32_t kDeliveriesDefault = 50;

absl::Status NothingIsTold() {
  return absl::UnavailableError("this server tells nobody of jobs");
}

uint32_t BitOf(v1::NotifyEvent event) {
  return notify::ParseEvent(
      absl::AsciiStrToLower(v1::NotifyEvent_Name(event).substr(sizeof("NOTIFY_EVENT_") - 1)));
}

v1::NotifyEvent EventOf(uint32_t bit) {
  v1::NotifyEvent event = v1::NOTIFY_EVENT_UNSPECIFIED;
  (void)v1::NotifyEvent_Parse(
      absl::StrCat("NOTIFY_EVENT_", absl::AsciiStrToUpper(notify::EventText(bit))), &event);
  return event;
}

v1::DeliveryState StateToProto(store::DeliveryState state) {
  switch (state) {
    case store::DeliveryState::kPending:
      return v1::DELIVERY_STATE_PENDING;
    case store::DeliveryState::kDelivered:
      return v1::DELIVERY_STATE_DELIVERED;
    case store::DeliveryState::kGivenUp:
      break;
  }
  return v1::DELIVERY_STATE_GIVEN_UP;
}

v1::Delivery DeliveryToProto(const store::DeliveryRecord& record) {
  v1::Delivery delivery;
  delivery.set_id(record.id);
  delivery.set_target(record.target);
  delivery.set_address(notify::ShownAddress(record.webhook, record.mail));
  delivery.set_event(EventOf(notify::ParseEvent(record.event)));
  if (record.job != JobId{}) delivery.set_job(JobName(record.job));
  delivery.set_state(StateToProto(record.state));
  delivery.set_result(record.result);
  delivery.set_tries(record.tries);
  *delivery.mutable_create_time() = ToTimestamp(record.create_us);
  if (record.last_try_us != 0) {
    *delivery.mutable_last_try_time() = ToTimestamp(record.last_try_us);
  }
  if (record.state == store::DeliveryState::kPending) {
    *delivery.mutable_next_try_time() = ToTimestamp(std::max(record.next_try_us, record.create_us));
  }
  return delivery;
}

v1::NotifyTarget TargetToProto(const store::TargetRecord& record) {
  v1::NotifyTarget target;
  target.set_name(record.name);
  if (!record.webhook.empty()) target.set_webhook(notify::ShownAddress(record.webhook, ""));
  target.set_mail(record.mail);
  for (const auto bit : {notify::kStart, notify::kEnd, notify::kFailure, notify::kStuck}) {
    if ((record.events & bit) != 0) target.add_events(EventOf(bit));
  }
  *target.mutable_create_time() = ToTimestamp(record.create_us);
  return target;
}

store::TargetRecord FromProto(const v1::NotifyTarget& target, RequestCheck& check) {
  store::TargetRecord record;
  record.name = target.name();
  record.webhook = target.webhook();
  record.mail = target.mail();
  check.Name("target.name", target.name(), /*may_be_empty=*/true);
  if (record.webhook.empty() == record.mail.empty()) {
    check.Add("target", "must have either a webhook or a mail address");
  }
  for (int i = 0; i < target.events_size(); ++i) {
    const uint32_t bit = v1::NotifyEvent_IsValid(target.events(i)) ? BitOf(target.events(i)) : 0;
    if (bit == 0) {
      check.Add(absl::StrCat("target.events[", i, "]"),
                "is no event; expected start, end, failure or stuck");
    }
    record.events |= bit;
  }
  if (record.events == 0) record.events = notify::kDefaultEvents;
  return record;
}

// Returns a name that no target has: "mail", "mail-2" and so on.
std::string FreeName(const store::TargetRecord& target,
                     const std::vector<store::TargetRecord>& others) {
  const std::string base = target.webhook.empty() ? "mail" : "webhook";
  const auto is_taken = [&others](const std::string& name) {
    return std::any_of(others.begin(), others.end(),
                       [&name](const auto& other) { return other.name == name; });
  };
  std::string name = base;
  for (int number = 2; is_taken(name); ++number) name = absl::StrCat(base, "-", number);
  return name;
}

// Tells what is wrong with an address as a violation, unless the server's rules forbid it.
absl::Status CheckAddress(const store::TargetRecord& target, const notify::Courier& courier,
                          RequestCheck& check) {
  const bool is_mail = target.webhook.empty();
  const absl::Status may = is_mail ? notify::CheckMail(target.mail, courier.rules())
                                   : notify::CheckWebhook(target.webhook, courier.rules());
  if (absl::IsInvalidArgument(may)) {
    check.Add(is_mail ? "target.mail" : "target.webhook", may.message());
    return absl::OkStatus();
  }
  if (may.ok() && is_mail && !courier.sends_mail()) {
    return error::NotifyForbidden(target.mail, "it has no mail system (--sendmail)");
  }
  return may;
}

}  // namespace

NotifyServiceImpl::NotifyServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* NotifyServiceImpl::AddTarget(const access::Caller& caller,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::AddTargetRequest* request,
                                                       v1::AddTargetResponse* response) {
  if (services_.courier == nullptr) return Finished(context, NothingIsTold());
  RequestCheck check;
  store::TargetRecord target = FromProto(request->target(), check);
  absl::Status may = absl::OkStatus();
  if (check.ok()) may = CheckAddress(target, *services_.courier, check);
  if (!check.ok()) return Refused(context, check);
  // The entry has the address as it may be shown.
  Decisions decisions(access::RuleOf("NotifyService/AddTarget"), caller, services_,
                      {notify::ShownAddress(target.webhook, target.mail)});
  may = decisions.Take(may);
  decisions.Write();
  if (!may.ok()) return Finished(context, may);
  target.user = caller.user;
  if (!target.webhook.empty()) {
    target.signing_key = notify::NewSigningKey();
  }
  return FinishAfter(context, changes_, [this, target, response]() mutable -> absl::Status {
    TY_ASSIGN_OR_RETURN(const auto others, services_.targets->ListTargets(target.user));
    if (target.name.empty()) target.name = FreeName(target, others);
    target.create_us = absl::ToUnixMicros(services_.sign_in->clock->Now());
    TY_RETURN_IF_ERROR(services_.targets->AddTarget(target));
    *response->mutable_target() = TargetToProto(target);
    response->set_signing_key(target.signing_key);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* NotifyServiceImpl::ListTargets(const access::Caller& caller,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::ListTargetsRequest*,
                                                         v1::ListTargetsResponse* response) {
  if (services_.courier == nullptr) return Finished(context, NothingIsTold());
  return FinishAfter(
      context, services_.executor, [this, user = caller.user, response]() -> absl::Status {
        TY_ASSIGN_OR_RETURN(const auto targets, services_.targets->ListTargets(user));
        for (const store::TargetRecord& target : targets) {
          v1::NotifyTarget& shown = *response->add_targets();
          shown = TargetToProto(target);
          TY_ASSIGN_OR_RETURN(const auto last,
                              services_.targets->ListDeliveries(user, target.name, 1));
          if (!last.empty()) *shown.mutable_last_delivery() = DeliveryToProto(last.front());
        }
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* NotifyServiceImpl::DeleteTarget(const access::Caller& caller,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::DeleteTargetRequest* request,
                                                          v1::DeleteTargetResponse*) {
  if (services_.courier == nullptr) return Finished(context, NothingIsTold());
  RequestCheck check;
  check.Name("name", request->name());
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, changes_, [this, user = caller.user, request] {
    return services_.targets->DeleteTarget(user, request->name());
  });
}

grpc::ServerUnaryReactor* NotifyServiceImpl::TestTarget(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::TestTargetRequest* request,
                                                        v1::Delivery* response) {
  if (services_.courier == nullptr) return Finished(context, NothingIsTold());
  RequestCheck check;
  check.Name("name", request->name());
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, tests_,
                     [this, user = caller.user, request, response]() -> absl::Status {
                       TY_ASSIGN_OR_RETURN(const auto target,
                                           services_.targets->FindTarget(user, request->name()));
                       *response = DeliveryToProto(services_.courier->Test(target));
                       return absl::OkStatus();
                     });
}

grpc::ServerUnaryReactor* NotifyServiceImpl::ListDeliveries(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::ListDeliveriesRequest* request, v1::ListDeliveriesResponse* response) {
  if (services_.courier == nullptr) return Finished(context, NothingIsTold());
  RequestCheck check;
  const int limit = check.PageSize("limit", request->limit(), kDeliveriesDefault,
                                   static_cast<int>(store::kDoneOfUserMax));
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, services_.executor,
                     [this, user = caller.user, limit, request, response]() -> absl::Status {
                       TY_ASSIGN_OR_RETURN(
                           const auto deliveries,
                           services_.targets->ListDeliveries(user, request->target(), limit));
                       for (const store::DeliveryRecord& delivery : deliveries) {
                         *response->add_deliveries() = DeliveryToProto(delivery);
                       }
                       return absl::OkStatus();
                     });
}

}  // namespace trainyard::rpc
