// Providers as people ask for them, with a cluster that accepts what it is told to accept.
#include "server/rpc/provider_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/provision/cluster.h"
#include "server/provision/keeper.h"
#include "server/provision/provider_store.h"
#include "tests/unit/server/rpc/rpc_fixture.h"
#include "trainyard/v1/provider.grpc.pb.h"

namespace trainyard::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FakeCluster : public provision::Cluster {
 public:
  explicit FakeCluster(const absl::Status& verdict) : verdict_(verdict) {}
  absl::Status TryOut() const override { return verdict_; }
  provision::SubmitResult Submit(const std::string& pilot,
                                 const std::vector<std::string>&) const override {
    return {pilot, provision::SubmitResult::Kind::kUnknown, "", ""};
  }
  provision::Listing List(const std::vector<std::string>&) const override { return {}; }
  absl::Status Cancel(const std::string&) const override { return absl::OkStatus(); }
  void DropTokens(const std::string&) const override {}

 private:
  const absl::Status& verdict_;
};

class ProviderServiceTest : public RpcTest {
 protected:
  using Stub = v1::ProviderService::Stub;

  void SetUp() override {
    RpcTest::SetUp();
    provider_store_ = *provision::ProviderStore::Open(dir_.File("providers.db"));
    provision::Keeper::Options options;
    options.server_id = "s1";
    options.connect = [this](const std::string&, const provision::ProviderSpec&,
                             const provision::ClusterOptions&, const std::atomic<bool>&) {
      return std::make_unique<FakeCluster>(verdict_);
    };
    // Its thread is not started, so that nothing happens by itself.
    keeper_ = *provision::Keeper::Open(std::move(options), *provider_store_, *runtime_, clock_);
    services_->providers = keeper_.get();
    services_->complete_provider = [](provision::ProviderSpec&, provision::ClusterOptions&) {
      return absl::OkStatus();
    };
    stub_ = v1::ProviderService::NewStub(Connect(User("root", access::Role::kAdmin)));
  }
  void TearDown() override {
    stub_.reset();
    services_->providers = nullptr;
    keeper_.reset();
    RpcTest::TearDown();
  }

  static v1::ProviderSpec Pods() {
    v1::ProviderSpec spec;
    spec.set_name("gpu");
    spec.set_devices(1);
    spec.set_cpus(1);
    spec.mutable_kubernetes()->set_pod("{}");
    spec.mutable_kubernetes()->set_namespace_("pilots");
    return spec;
  }
  absl::StatusOr<v1::Provider> Create(const v1::ProviderSpec& spec, bool validate_only = false) {
    v1::CreateProviderRequest request;
    *request.mutable_spec() = spec;
    request.set_validate_only(validate_only);
    return Call(&Stub::CreateProvider, request);
  }
  absl::StatusOr<v1::Provider> Update(const v1::ProviderSpec& spec) {
    v1::UpdateProviderRequest request;
    *request.mutable_spec() = spec;
    return Call(&Stub::UpdateProvider, request);
  }
  absl::StatusOr<v1::Provider> Get(const std::string& name) {
    v1::GetProviderRequest request;
    request.set_name(name);
    return Call(&Stub::GetProvider, request);
  }
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&,
                                                           Response*),
                                const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status = ((*stub_).*call)(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  absl::Status verdict_;
  std::unique_ptr<provision::ProviderStore> provider_store_;
  std::unique_ptr<provision::Keeper> keeper_;
  std::unique_ptr<v1::ProviderService::Stub> stub_;
};

TEST_F(ProviderServiceTest, ACheckKeepsNothing) {
  const auto checked = Create(Pods(), /*validate_only=*/true);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->spec().kubernetes().namespace_(), "pilots");
  EXPECT_EQ(ErrorReason(Get("gpu").status()), "PROVIDER_NOT_FOUND");
}

TEST_F(ProviderServiceTest, IsKeptOnceIfTheClusterAcceptsIt) {
  verdict_ = absl::FailedPreconditionError("no such quota");
  EXPECT_THAT(std::string(Create(Pods()).status().message()), HasSubstr("no such quota"));
  EXPECT_EQ(ErrorReason(Get("gpu").status()), "PROVIDER_NOT_FOUND");
  verdict_ = absl::OkStatus();
  ASSERT_TRUE(Create(Pods()).ok());
  EXPECT_EQ(ErrorReason(Create(Pods()).status()), "PROVIDER_EXISTS");
  EXPECT_EQ(Get("gpu")->spec().kubernetes().pod(), "{}");
}

TEST_F(ProviderServiceTest, ATimeBeyondAnyCalendarIsRefused) {
  for (const int64_t seconds :
       {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    v1::ProviderSpec spec = Pods();
    spec.mutable_time_limit()->set_seconds(seconds);
    EXPECT_THAT(std::string(Create(spec).status().message()), HasSubstr("time_limit"));
  }
}

TEST_F(ProviderServiceTest, PilotsCanStillBeFoundAfterAChange) {
  EXPECT_EQ(ErrorReason(Update(Pods()).status()), "PROVIDER_NOT_FOUND");
  ASSERT_TRUE(Create(Pods()).ok());
  v1::ProviderSpec more = Pods();
  more.set_max_pilots(7);
  more.add_datasets("images:flowers");
  const auto updated = Update(more);
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->spec().max_pilots(), 7);
  EXPECT_THAT(updated->spec().datasets(), ElementsAre("images:flowers"));
  v1::ProviderSpec elsewhere = more;
  elsewhere.mutable_kubernetes()->set_namespace_("others");
  EXPECT_THAT(std::string(Update(elsewhere).status().message()), HasSubstr("namespace"));
  v1::ProviderSpec slurm = more;
  slurm.mutable_slurm();
  EXPECT_THAT(std::string(Update(slurm).status().message()), HasSubstr("cluster"));
  EXPECT_EQ(Get("gpu")->spec().kubernetes().namespace_(), "pilots");
}

TEST_F(ProviderServiceTest, GoesWithItsPilotsOrIsForgotten) {
  ASSERT_TRUE(Create(Pods()).ok());
  v1::DeleteProviderRequest request;
  request.set_name("gpu");
  ASSERT_TRUE(keeper_
                  ->Change([](provision::State& state) {
                    provision::Pilot& pilot = state.providers.at("gpu").pilots[1];
                    pilot.number = 1;
                    return absl::OkStatus();
                  })
                  .ok());
  ASSERT_TRUE(Call(&Stub::DeleteProvider, request).ok());
  EXPECT_EQ(Get("gpu")->state(), v1::PROVIDER_STATE_REMOVING);
  EXPECT_NE(Get("gpu")->pilots(0).state(), v1::PILOT_STATE_ENDED);
  request.set_forget(true);
  ASSERT_TRUE(Call(&Stub::DeleteProvider, request).ok());
  EXPECT_EQ(Get("gpu")->pilots(0).state(), v1::PILOT_STATE_ENDED);
}

TEST_F(ProviderServiceTest, SaysWhyItIsAskedSeldom) {
  ASSERT_TRUE(Create(Pods()).ok());
  EXPECT_EQ(Get("gpu")->state_reason(), "");
  ASSERT_TRUE(keeper_
                  ->Change([](provision::State& state) {
                    state.providers.at("gpu").unused_pilots = 3;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_THAT(Get("gpu")->state_reason(), HasSubstr("3 pilots in a row had no work"));
}

TEST_F(ProviderServiceTest, MistakesAreToldWithTheirFields) {
  v1::ProviderSpec spec = Pods();
  spec.clear_kubernetes();
  spec.set_owner("no/name");
  const auto violations = GetFieldViolations(Create(spec).status());
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "spec.slurm");
  EXPECT_EQ(violations[1].field, "spec.owner");
}

}  // namespace
}  // namespace trainyard::rpc
