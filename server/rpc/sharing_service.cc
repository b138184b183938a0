// Shows and sets the rules by which the pool is shared.
#include "server/rpc/sharing_service.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/rpc/status.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

v1::Quota QuotaProto(const core::QuotaRecord& quota) {
  v1::Quota proto;
  proto.set_subject(quota.subject);
  proto.set_devices(quota.devices);
  proto.set_queued_jobs(quota.queued_jobs);
  proto.set_submits_per_minute(quota.submits_per_minute);
  proto.set_stored_bytes(quota.stored_bytes);
  proto.set_cpus(quota.held.cpus);
  proto.set_memory_bytes(quota.held.memory_bytes);
  proto.set_weight(quota.weight);
  return proto;
}

v1::Reservation ReservationProto(const core::ReservationRecord& reservation) {
  v1::Reservation proto;
  proto.set_name(reservation.name);
  *proto.mutable_start_time() = ToTimestamp(reservation.start_us);
  *proto.mutable_end_time() = ToTimestamp(reservation.end_us);
  for (const auto& [worker, device] : reservation.devices) {
    v1::ReservedDevice* added = proto.add_devices();
    added->set_worker(WorkerName(worker));
    added->set_device(device);
  }
  for (const std::string& subject : reservation.subjects) proto.add_subjects(subject);
  proto.set_actor(reservation.actor);
  return proto;
}

core::CreateReservation FromProto(const v1::CreateReservationRequest& request, int64_t now_us,
                                  RequestCheck& check) {
  const v1::Reservation& wanted = request.reservation();
  core::CreateReservation input;
  input.count = request.count();
  input.type = request.type();
  core::ReservationRecord& made = input.reservation;
  made.name = wanted.name();
  check.Name("reservation.name", wanted.name());
  made.start_us = wanted.has_start_time() ? FromTimestamp(wanted.start_time()) : now_us;
  made.end_us = FromTimestamp(wanted.end_time());
  if (!wanted.has_end_time()) {
    check.Add("reservation.end_time", "must be given");
  } else if (made.end_us <= made.start_us || made.end_us <= now_us) {
    check.Add("reservation.end_time", "is not after the start, or not after now");
  }
  check.MaxCount("reservation.devices", wanted.devices_size(), kReservedDevicesMax);
  for (int i = 0; i < std::min(wanted.devices_size(), kReservedDevicesMax); ++i) {
    const std::string field = absl::StrCat("reservation.devices[", i, "]");
    made.devices.emplace_back(check.Worker(field + ".worker", wanted.devices(i).worker()),
                              wanted.devices(i).device());
    check.NotEmpty(field + ".device", wanted.devices(i).device());
  }
  const bool is_counted = wanted.devices().empty();
  if (is_counted && (request.count() < 1 || request.count() > kReservedDevicesMax)) {
    check.Add("count", absl::StrCat(request.count(), " is not accepted; expected 1 to ",
                                    kReservedDevicesMax, ", or devices by name"));
  } else if (!is_counted && request.count() != 0) {
    check.Add("count", "cannot stand beside reservation.devices");
  }
  check.MaxBytes("type", request.type(), kNameBytesMax);
  check.MaxCount("reservation.subjects", wanted.subjects_size(), kSubjectsMax);
  if (wanted.subjects().empty()) {
    check.Add("reservation.subjects", "must be given: who may use the devices, such as user:anna");
  }
  for (int i = 0; i < std::min(wanted.subjects_size(), kSubjectsMax); ++i) {
    check.Subject(absl::StrCat("reservation.subjects[", i, "]"), wanted.subjects(i),
                  /*may_be_all=*/false);
    made.subjects.push_back(wanted.subjects(i));
  }
  return input;
}

int32_t WeightOf(const std::map<std::string, core::QuotaRecord>& quotas, absl::string_view kind,
                 const std::string& name) {
  auto found = quotas.find(absl::StrCat(kind, ":", name));
  if (found == quotas.end()) found = quotas.find(absl::StrCat(kind, ":*"));
  return found == quotas.end() ? 1 : std::max(found->second.weight, 1);
}

}  // namespace

SharingServiceImpl::SharingServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* SharingServiceImpl::SetQuota(const access::Caller& caller,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::SetQuotaRequest* request,
                                                       v1::Quota* response) {
  RequestCheck check;
  const v1::Quota& quota = request->quota();
  check.Subject("quota.subject", quota.subject(), /*may_be_all=*/true);
  check.NotNegative("quota.devices", quota.devices());
  check.NotNegative("quota.queued_jobs", quota.queued_jobs());
  check.NotNegative("quota.submits_per_minute", quota.submits_per_minute());
  check.NotNegative("quota.stored_bytes", quota.stored_bytes());
  check.NotNegative("quota.cpus", quota.cpus());
  check.NotNegative("quota.memory_bytes", quota.memory_bytes());
  if (quota.weight() < 0 || quota.weight() > kWeightMax) {
    check.Add("quota.weight",
              absl::StrCat(quota.weight(), " is not accepted; expected 0 to ", kWeightMax));
  }
  if (!check.ok()) return Refused(context, check);
  *response = quota;
  const core::QuotaRecord record = {quota.subject(),
                                    quota.devices(),
                                    quota.queued_jobs(),
                                    quota.submits_per_minute(),
                                    quota.stored_bytes(),
                                    quota.weight(),
                                    {quota.cpus(), quota.memory_bytes()}};
  return FinishWhenDone(context, services_, core::SetQuota{record, UserActor(caller.user)});
}

grpc::ServerUnaryReactor* SharingServiceImpl::ListQuotas(const access::Caller&,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::ListQuotasRequest*,
                                                         v1::ListQuotasResponse* response) {
  return FinishFromYard(context, services_, [response](const core::Yard& yard) {
    for (const auto& [subject, quota] : yard.snapshot().quotas) {
      *response->add_quotas() = QuotaProto(quota);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SharingServiceImpl::DeleteQuota(const access::Caller& caller,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::DeleteQuotaRequest* request,
                                                          v1::DeleteQuotaResponse*) {
  RequestCheck check;
  check.Subject("subject", request->subject(), /*may_be_all=*/true);
  if (!check.ok()) return Refused(context, check);
  return FinishWhenDone(context, services_,
                        core::DeleteQuota{request->subject(), UserActor(caller.user)});
}

grpc::ServerUnaryReactor* SharingServiceImpl::CreateReservation(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::CreateReservationRequest* request, v1::Reservation* response) {
  RequestCheck check;
  core::CreateReservation input = FromProto(*request, services_.runtime.Now().wall_us, check);
  if (!check.ok()) return Refused(context, check);
  input.reservation.actor = UserActor(caller.user);
  const std::string name = input.reservation.name;
  // The answer names the devices that were chosen, which the yard knows by then.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto answer = [this, reactor, response, name](const absl::StatusOr<core::Reply>& reply) {
    if (!reply.ok()) return reactor->Finish(ToGrpcStatus(reply.status()));
    services_.runtime.Read([reactor, response, name](absl::StatusOr<const core::Yard*> yard) {
      absl::Status status = yard.status();
      if (yard.ok()) {
        const auto& all = (*yard)->snapshot().reservations;
        const auto found = all.find(name);
        if (found == all.end()) {
          status = error::ReservationNotFound(name);
        } else {
          *response = ReservationProto(found->second);
        }
      }
      reactor->Finish(ToGrpcStatus(status));
    });
  };
  services_.runtime.Post(std::move(input), answer);
  return reactor;
}

grpc::ServerUnaryReactor* SharingServiceImpl::ListReservations(
    const access::Caller&, grpc::CallbackServerContext* context, const v1::ListReservationsRequest*,
    v1::ListReservationsResponse* response) {
  return FinishFromYard(context, services_, [response](const core::Yard& yard) {
    for (const auto& [name, reservation] : yard.snapshot().reservations) {
      *response->add_reservations() = ReservationProto(reservation);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SharingServiceImpl::DeleteReservation(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::DeleteReservationRequest* request, v1::DeleteReservationResponse*) {
  RequestCheck check;
  check.Name("name", request->name());
  if (!check.ok()) return Refused(context, check);
  return FinishWhenDone(context, services_,
                        core::DeleteReservation{request->name(), UserActor(caller.user)});
}

grpc::ServerUnaryReactor* SharingServiceImpl::ListShares(const access::Caller& caller,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::ListSharesRequest*,
                                                         v1::ListSharesResponse* response) {
  return FinishFromYard(context, services_, [this, caller, response](const core::Yard& yard) {
    std::map<core::UsageKey, core::UsageRecord> usage = yard.Usage(services_.runtime.Now());
    const std::map<core::UsageKey, runtime::Board::Tally> tallies = services_.board.Tallies();
    for (const auto& [key, tally] : tallies) {
      const bool is_active = tally.queued_jobs > 0 || tally.devices > 0;
      if (is_active) usage.emplace(key, core::UsageRecord{});
    }
    for (const auto& [key, record] : usage) {
      const auto& [project, user] = key;
      if (!services_.directory.MaySee(caller, user, project)) continue;
      v1::Share* share = response->add_shares();
      share->set_project(project);
      share->set_user(user);
      *share->mutable_device_time() = ToDuration(record.device_us);
      share->set_weight(WeightOf(yard.snapshot().quotas, "user", user));
      if (!project.empty()) {
        share->set_project_weight(WeightOf(yard.snapshot().quotas, "project", project));
      }
      const auto tally = tallies.find(key);
      if (tally == tallies.end()) continue;
      share->set_devices(static_cast<int32_t>(tally->second.devices));
      share->set_queued_jobs(tally->second.queued_jobs);
    }
    return absl::OkStatus();
  });
}

}  // namespace trainyard::rpc
