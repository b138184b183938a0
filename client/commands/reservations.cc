// reservations keeps devices for some users during some time.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/submit_options.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

using output::Table;

struct ReservationOptions {
  std::string name;
  std::vector<std::string> subjects;
  int devices = 0;
  std::string device_type;
  std::vector<std::string> device_names;
  std::string start;
  std::string end;
};

struct DeleteReservationsOptions {
  std::vector<std::string> names;
};

std::string DevicesText(const v1::Reservation& reservation) {
  return absl::StrJoin(reservation.devices(), ", ", [](std::string* out, const auto& device) {
    absl::StrAppend(out, output::ShortName(device.worker()), "/", device.device());
  });
}

absl::Status TakeDevices(const ReservationOptions& options, v1::CreateReservationRequest& request) {
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
          absl::StrCat("--device '", text, "' is not a device; write WORKER/DEVICE"));
    }
    v1::ReservedDevice* device = request.mutable_reservation()->add_devices();
    device->set_worker(WorkerName(parts[0]));
    device->set_device(parts[1]);
  }
  return absl::OkStatus();
}

Result ListReservations(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(
      const v1::ListReservationsResponse response,
      link->Call(&v1::SharingService::Stub::ListReservations, v1::ListReservationsRequest()));
  if (PrintResources(context, response.reservations())) return link::kOk;
  if (response.reservations().empty()) {
    context.Say("no reservations; `trainyard reservations create` makes one");
    return link::kOk;
  }
  Table table({{"NAME"}, {"STATE"}, {"START"}, {"END"}, {"FOR"}, {"BY"}, {"DEVICES"}});
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

Result CreateReservation(const Context& context, const ReservationOptions& options) {
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
                           output::TimeText(made.end_time())));
  if (!PrintOne(context, made, made.name())) context.out << made.name() << "\n";
  return link::kOk;
}

Result DeleteReservations(const Context& context, const DeleteReservationsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  for (const std::string& name : options.names) {
    v1::DeleteReservationRequest request;
    request.set_name(name);
    TY_RETURN_IF_ERROR(link->Call(&v1::SharingService::Stub::DeleteReservation, request).status());
    context.Say(absl::StrCat("reservation ", name, " is gone"));
  }
  return link::kOk;
}

}  // namespace

void AddReservations(VerbTable& verbs) {
  verbs.Group("reservations", "Devices kept for some users for a while");
  verbs.Add("reservations ls", "List the reservations in force and to come", "", ListReservations);
  verbs.Add<ReservationOptions>(
      "reservations create", "Keep devices for users and projects",
      "course --for project:course --devices 4 --start 14:00 --end +4h",
      [](client::Flags& flags, ReservationOptions& options) {
        flags.Word("NAME", options.name, "Name of the reservation").Required();
        flags.Repeated("--for", options.subjects, "user:NAME or project:NAME; may be repeated")
            .Required();
        flags.Value("--devices", options.devices, "Number of devices; free ones are taken first")
            .Range(1, 4096);
        flags.Value("--type", options.device_type, "With --devices: of this type");
        flags.Repeated("--device", options.device_names, "WORKER/DEVICE; may be repeated");
        flags.Value("--start", options.start, "18:00, +2h, or a time as in --begin (now)");
        flags.Value("--end", options.end, "The same; +2h is two hours after the start").Required();
      },
      CreateReservation);
  verbs.Add<DeleteReservationsOptions>(
      "reservations rm", "End reservations, or call them off", "course",
      [](client::Flags& flags, DeleteReservationsOptions& options) {
        flags.Words("NAME", options.names, "Names of reservations").Required();
      },
      DeleteReservations);
}

}  // namespace trainyard::commands
