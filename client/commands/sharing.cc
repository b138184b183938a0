// quotas, reservations and shares: how the pool is shared.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/commands.h"
#include "client/commands/share_table.h"
#include "client/commands/submit_options.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/byte_size.h"

namespace trainyard::commands {
namespace {

using output::Table;

// A limit; empty for none.
std::string LimitText(int64_t limit) {
  return limit == 0 ? "" : FormatCount(limit);
}

absl::StatusOr<v1::Quota> FindQuota(link::ServerLink& link, const std::string& subject) {
  TY_ASSIGN_OR_RETURN(const v1::ListQuotasResponse response,
                      link.Call(&v1::SharingService::Stub::ListQuotas, v1::ListQuotasRequest()));
  for (const v1::Quota& quota : response.quotas()) {
    if (quota.subject() == subject) return quota;
  }
  v1::Quota none;
  none.set_subject(subject);
  return none;
}

template <typename Messages>
bool PrintAll(const Context& context, const Messages& all, const std::vector<std::string>& names) {
  std::vector<const google::protobuf::Message*> messages;
  for (const auto& message : all) messages.push_back(&message);
  return PrintList(context, messages, names);
}

std::string DevicesText(const v1::Reservation& reservation) {
  return absl::StrJoin(reservation.devices(), ", ", [](std::string* out, const auto& device) {
    absl::StrAppend(out, output::ShortName(device.worker()), "/", device.device());
  });
}

absl::Status TakeDevices(const Options& options, v1::CreateReservationRequest& request) {
  if ((options.devices > 0) == !options.device_names.empty()) {
    return absl::InvalidArgumentError(
        "say which devices: --devices 4 for any four, or --device lab-1/cpu-0, repeated");
  }
  request.set_count(options.devices);
  request.set_type(options.device_type);
  for (const std::string& text : options.device_names) {
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
    if (parts.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device '", text, "' is no device; write WORKER/DEVICE"));
    }
    v1::ReservedDevice* device = request.mutable_reservation()->add_devices();
    device->set_worker(WorkerName(parts[0]));
    device->set_device(parts[1]);
  }
  return absl::OkStatus();
}

}  // namespace

Result ListQuotas(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListQuotasResponse response,
                      link->Call(&v1::SharingService::Stub::ListQuotas, v1::ListQuotasRequest()));
  std::vector<std::string> names;
  for (const v1::Quota& quota : response.quotas()) names.push_back(quota.subject());
  if (PrintAll(context, response.quotas(), names)) return link::kOk;
  if (names.empty()) {
    context.Say("no quotas; `trainyard quotas set user:NAME --devices 4` sets one");
    return link::kOk;
  }
  Table table({{"SUBJECT"},
               {"DEVICES", Table::Align::kRight},
               {"QUEUED", Table::Align::kRight},
               {"SUBMITS/MIN", Table::Align::kRight},
               {"STORAGE", Table::Align::kRight},
               {"WEIGHT", Table::Align::kRight}});
  for (const v1::Quota& quota : response.quotas()) {
    table.AddRow({quota.subject(), LimitText(quota.devices()), LimitText(quota.queued_jobs()),
                  LimitText(quota.submits_per_minute()),
                  quota.stored_bytes() == 0 ? "" : FormatBytes(quota.stored_bytes()),
                  absl::StrCat(std::max(quota.weight(), 1))});
  }
  context.out << table.Render();
  return link::kOk;
}

Result SetQuota(const Context& context) {
  const Options& options = context.options;
  const bool is_given = options.quota_devices >= 0 || options.queued_jobs >= 0 ||
                        options.submits_per_minute >= 0 || options.weight >= 0 ||
                        !options.storage.empty();
  if (!is_given) {
    return absl::InvalidArgumentError(
        "give at least one of --devices, --queued, --submits, --storage and --weight");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::SetQuotaRequest request;
  v1::Quota& quota = *request.mutable_quota();
  TY_ASSIGN_OR_RETURN(quota, FindQuota(*link, options.selectors[0]));
  if (options.quota_devices >= 0) quota.set_devices(options.quota_devices);
  if (options.queued_jobs >= 0) quota.set_queued_jobs(options.queued_jobs);
  if (options.submits_per_minute >= 0) quota.set_submits_per_minute(options.submits_per_minute);
  if (options.weight >= 0) quota.set_weight(options.weight);
  if (options.storage == "0") {
    quota.set_stored_bytes(0);
  } else if (!options.storage.empty()) {
    TY_ASSIGN_OR_RETURN(const v1::ByteSize size, spec::ParseByteSize(options.storage));
    quota.set_stored_bytes(size.bytes());
  }
  TY_ASSIGN_OR_RETURN(const v1::Quota set,
                      link->Call(&v1::SharingService::Stub::SetQuota, request));
  context.Say(
      absl::StrCat("the quota of ", set.subject(), " is set; `trainyard quotas ls` shows it"));
  PrintOne(context, set, set.subject());
  return link::kOk;
}

Result DeleteQuotas(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& subject : context.options.selectors) {
    v1::DeleteQuotaRequest request;
    request.set_subject(subject);
    TY_RETURN_IF_ERROR(link->Call(&v1::SharingService::Stub::DeleteQuota, request).status());
    context.Say(absl::StrCat(subject, " has no quota of its own any more"));
  }
  return link::kOk;
}

Result ListReservations(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(
      const v1::ListReservationsResponse response,
      link->Call(&v1::SharingService::Stub::ListReservations, v1::ListReservationsRequest()));
  std::vector<std::string> names;
  for (const v1::Reservation& made : response.reservations()) names.push_back(made.name());
  if (PrintAll(context, response.reservations(), names)) return link::kOk;
  if (names.empty()) {
    context.Say("no reservations; `trainyard reservations create` makes one");
    return link::kOk;
  }
  Table table({{"NAME"}, {"STATE"}, {"START (UTC)"}, {"END (UTC)"}, {"FOR"}, {"BY"}, {"DEVICES"}});
  const absl::Time now = context.clock.Now();
  for (const v1::Reservation& made : response.reservations()) {
    const bool has_begun = output::ToTime(made.start_time()) <= now;
    table.AddRow({made.name(), has_begun ? "in force" : "to come",
                  output::TimeText(made.start_time()), output::TimeText(made.end_time()),
                  absl::StrJoin(made.subjects(), ", "), made.actor(), DevicesText(made)});
  }
  context.out << table.Render();
  return link::kOk;
}

Result CreateReservation(const Context& context) {
  const Options& options = context.options;
  v1::CreateReservationRequest request;
  v1::Reservation& wanted = *request.mutable_reservation();
  wanted.set_name(options.name);
  wanted.mutable_subjects()->Add(options.subjects.begin(), options.subjects.end());
  TY_RETURN_IF_ERROR(TakeDevices(options, request));
  const absl::Time now = context.clock.Now();
  absl::Time start = now;
  if (!options.start.empty()) {
    TY_ASSIGN_OR_RETURN(start, ParseMoment(options.start, now, now));
    *wanted.mutable_start_time() = ToTimestamp(start);
  }
  TY_ASSIGN_OR_RETURN(const absl::Time end, ParseMoment(options.end, start, start));
  *wanted.mutable_end_time() = ToTimestamp(end);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Reservation made,
                      link->Call(&v1::SharingService::Stub::CreateReservation, request));
  context.Say(absl::StrCat("reserved ", DevicesText(made), " from ",
                           output::TimeText(made.start_time()), " to ",
                           output::TimeText(made.end_time()), " UTC"));
  if (!PrintOne(context, made, made.name())) context.out << made.name() << "\n";
  return link::kOk;
}

Result DeleteReservations(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : context.options.selectors) {
    v1::DeleteReservationRequest request;
    request.set_name(name);
    TY_RETURN_IF_ERROR(link->Call(&v1::SharingService::Stub::DeleteReservation, request).status());
    context.Say(absl::StrCat("reservation ", name, " is gone"));
  }
  return link::kOk;
}

Result ListShares(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListSharesResponse response,
                      link->Call(&v1::SharingService::Stub::ListShares, v1::ListSharesRequest()));
  std::vector<std::string> names;
  for (const v1::Share& share : response.shares()) {
    names.push_back(
        absl::StrCat(share.project(), share.project().empty() ? "" : "/", share.user()));
  }
  if (PrintAll(context, response.shares(), names)) return link::kOk;
  if (names.empty()) {
    context.Say("nobody has used the pool yet");
  } else {
    context.out << ShareTable(response);
  }
  return link::kOk;
}

}  // namespace trainyard::commands
