// Tests quotas, reservations and shares, and workers and devices that are set aside.
#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "server/rpc/limits.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class SharingTest : public RpcTest {
 protected:
  absl::Status SetQuota(const std::string& subject, const std::function<void(v1::Quota&)>& set) {
    v1::SetQuotaRequest request;
    request.mutable_quota()->set_subject(subject);
    set(*request.mutable_quota());
    v1::Quota quota;
    const grpc::Status status = sharing_->SetQuota(Context("olga").get(), request, &quota);
    if (status.ok()) {
      EXPECT_EQ(quota.SerializeAsString(), request.quota().SerializeAsString());
    }
    return FromGrpcStatus(status);
  }
  absl::StatusOr<v1::Reservation> Reserve(const v1::CreateReservationRequest& request) {
    v1::Reservation reservation;
    const grpc::Status status =
        sharing_->CreateReservation(Context("olga").get(), request, &reservation);
    if (!status.ok()) return FromGrpcStatus(status);
    return reservation;
  }
  v1::CreateReservationRequest Request(const std::string& name) {
    v1::CreateReservationRequest request;
    request.mutable_reservation()->set_name(name);
    request.mutable_reservation()->mutable_end_time()->set_seconds(
        absl::ToUnixSeconds(clock_.Now()) + 3600);
    request.mutable_reservation()->add_subjects("user:anna");
    request.set_count(1);
    return request;
  }
  static std::vector<std::string> Fields(const absl::Status& status) {
    std::vector<std::string> fields;
    for (const auto& violation : GetFieldViolations(status)) fields.push_back(violation.field);
    return fields;
  }
};

TEST_F(SharingTest, AQuotaIsSetListedAndTakenAway) {
  ASSERT_TRUE(SetQuota("user:anna", [](v1::Quota& quota) { quota.set_queued_jobs(1); }).ok());
  ASSERT_TRUE(SetQuota("project:*", [](v1::Quota& quota) { quota.set_weight(3); }).ok());
  v1::ListQuotasResponse list;
  ASSERT_TRUE(sharing_->ListQuotas(Context().get(), v1::ListQuotasRequest(), &list).ok());
  ASSERT_EQ(list.quotas_size(), 2);
  EXPECT_EQ(list.quotas(0).subject(), "project:*");
  EXPECT_EQ(list.quotas(1).queued_jobs(), 1);
  v1::DeleteQuotaRequest request;
  request.set_subject("user:anna");
  v1::DeleteQuotaResponse response;
  for (int i = 0; i < 2; ++i) {  // fine a second time
    ASSERT_TRUE(sharing_->DeleteQuota(Context().get(), request, &response).ok());
  }
  ASSERT_TRUE(sharing_->ListQuotas(Context().get(), v1::ListQuotasRequest(), &list).ok());
  EXPECT_EQ(list.quotas_size(), 1);
}

TEST_F(SharingTest, ASubmissionOverTheQuotaTellsWhoseAndWhich) {
  ASSERT_TRUE(SetQuota("user:*", [](v1::Quota& quota) { quota.set_queued_jobs(1); }).ok());
  CreateJob("first");
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec("second");
  v1::Job job;
  const grpc::Status status = jobs_->CreateJob(Context().get(), request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  google::rpc::Status wire;
  ASSERT_TRUE(wire.ParseFromString(status.error_details()));
  bool has_quota_failure = false;
  for (const auto& detail : wire.details()) {
    google::rpc::QuotaFailure failure;
    if (!detail.UnpackTo(&failure)) continue;
    has_quota_failure = true;
    ASSERT_EQ(failure.violations_size(), 1);
    EXPECT_EQ(failure.violations(0).subject(), "user:anna");
    EXPECT_THAT(failure.violations(0).description(), HasSubstr("its quota is 1"));
  }
  EXPECT_TRUE(has_quota_failure);
  EXPECT_EQ(ErrorReason(FromGrpcStatus(status)), "QUOTA_EXCEEDED");
}

TEST_F(SharingTest, AllThatIsWrongWithAQuotaIsTold) {
  EXPECT_THAT(Fields(SetQuota("anna",
                              [](v1::Quota& quota) {
                                quota.set_devices(-1);
                                quota.set_queued_jobs(-1);
                                quota.set_submits_per_minute(-1);
                                quota.set_stored_bytes(-1);
                                quota.set_weight(kWeightMax + 1);
                              })),
              ElementsAre("quota.subject", "quota.devices", "quota.queued_jobs",
                          "quota.submits_per_minute", "quota.stored_bytes", "quota.weight"));
}

TEST_F(SharingTest, AReservationChoosesDevicesOrTakesThoseThatWereNamed) {
  Register();
  Sync({});
  const auto chosen = Reserve(Request("course"));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  ASSERT_EQ(chosen->devices_size(), 1);
  EXPECT_EQ(chosen->devices(0).worker(), "workers/lab-1");
  EXPECT_EQ(chosen->actor(), "user:olga");
  EXPECT_GT(chosen->start_time().seconds(), 0);
  EXPECT_EQ(Reserve(Request("course")).status().code(), absl::StatusCode::kAlreadyExists);

  v1::CreateReservationRequest named = Request("talk");
  named.set_count(0);
  *named.mutable_reservation()->add_devices() = chosen->devices(0);
  EXPECT_EQ(Reserve(named).status().code(), absl::StatusCode::kFailedPrecondition);  // taken
  named.mutable_reservation()->mutable_devices(0)->set_device("cpu-9");
  EXPECT_EQ(Reserve(named).status().code(), absl::StatusCode::kNotFound);

  v1::ListReservationsResponse list;
  ASSERT_TRUE(
      sharing_->ListReservations(Context().get(), v1::ListReservationsRequest(), &list).ok());
  ASSERT_EQ(list.reservations_size(), 1);
  EXPECT_EQ(list.reservations(0).SerializeAsString(), chosen->SerializeAsString());
  v1::DeleteReservationRequest request;
  request.set_name("course");
  v1::DeleteReservationResponse response;
  EXPECT_TRUE(sharing_->DeleteReservation(Context().get(), request, &response).ok());
  EXPECT_EQ(sharing_->DeleteReservation(Context().get(), request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(SharingTest, AllThatIsWrongWithAReservationIsTold) {
  v1::CreateReservationRequest request;
  EXPECT_THAT(Fields(Reserve(request).status()),
              UnorderedElementsAre("reservation.name", "reservation.end_time", "count",
                                   "reservation.subjects"));
  request = Request("-x");
  request.mutable_reservation()->mutable_end_time()->set_seconds(5);
  request.mutable_reservation()->add_subjects("user:*");
  request.mutable_reservation()->add_devices()->set_worker("lab-1");
  EXPECT_THAT(Fields(Reserve(request).status()),
              UnorderedElementsAre("reservation.name", "reservation.end_time", "count",
                                   "reservation.subjects[1]", "reservation.devices[0].worker",
                                   "reservation.devices[0].device"));
}

TEST_F(SharingTest, SharesTellWhoHoldsDevicesAndWhoWaits) {
  ASSERT_TRUE(SetQuota("user:anna", [](v1::Quota& quota) { quota.set_weight(5); }).ok());
  for (int i = 0; i < 3; ++i) CreateJob("job");
  Register();
  Sync({});  // two of the three are placed
  v1::ListSharesResponse response;
  ASSERT_TRUE(sharing_->ListShares(Context().get(), v1::ListSharesRequest(), &response).ok());
  ASSERT_EQ(response.shares_size(), 1);
  const v1::Share& share = response.shares(0);
  EXPECT_EQ(share.user(), "anna");
  EXPECT_EQ(share.project(), "");
  EXPECT_EQ(share.weight(), 5);
  EXPECT_EQ(share.project_weight(), 0);
  EXPECT_EQ(share.devices(), 2);
  EXPECT_EQ(share.queued_jobs(), 1);
}

TEST_F(SharingTest, AWorkerIsDrainedAndADeviceSetAsideAndTakenBack) {
  Register();
  Sync({});
  v1::DrainWorkerRequest drain;
  drain.set_name("workers/lab-1");
  drain.mutable_within()->set_seconds(600);
  v1::Worker worker;
  ASSERT_TRUE(fleet_->DrainWorker(Context().get(), drain, &worker).ok());
  EXPECT_EQ(worker.scheduling(), v1::WORKER_SCHEDULING_DRAINING);
  drain.mutable_within()->set_seconds(int64_t{25} * 3600);
  EXPECT_THAT(Fields(FromGrpcStatus(fleet_->DrainWorker(Context().get(), drain, &worker))),
              ElementsAre("within"));

  v1::QuarantineDeviceRequest quarantine;
  quarantine.set_worker("workers/lab-1");
  quarantine.set_device("cpu-1");
  quarantine.set_reason("smells");
  ASSERT_TRUE(fleet_->QuarantineDevice(Context().get(), quarantine, &worker).ok());
  EXPECT_EQ(worker.devices(0).quarantine(), "");
  EXPECT_EQ(worker.devices(1).quarantine(), "smells");
  v1::ReleaseDeviceRequest release;
  release.set_worker("workers/lab-1");
  release.set_device("cpu-1");
  ASSERT_TRUE(fleet_->ReleaseDevice(Context().get(), release, &worker).ok());
  EXPECT_EQ(worker.devices(1).quarantine(), "");
  release.set_device("cpu-9");
  EXPECT_EQ(fleet_->ReleaseDevice(Context().get(), release, &worker).error_code(),
            grpc::StatusCode::NOT_FOUND);
  release.set_worker("lab-1");
  release.clear_device();
  EXPECT_THAT(Fields(FromGrpcStatus(fleet_->ReleaseDevice(Context().get(), release, &worker))),
              ElementsAre("worker", "device"));
}

}  // namespace
}  // namespace trainyard::rpc
