// Tests NVML with libraries that replace NVIDIA's.
#include "worker/agent/nvml.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "worker/agent/device_inventory.h"
#include "worker/agent/gpu_facts.h"

namespace trainyard::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr char kTwoGpus[] =
    "driver 570.86.10\n"
    "gpu GPU-3b00 name=NVIDIA_H200 memory=1000 used=250 utilization=42 memory_utilization=7 "
    "temperature=61 power=312500 power_limit=700000 clock=1980 throttle=0x24 ecc=2 ecc_lifetime=5 "
    "remap_pending=0 pids=7,4711\n"
    "gpu GPU-5e00 name=NVIDIA_H200 memory=1000\n";

class NvmlTest : public ::testing::Test {
 protected:
  ~NvmlTest() override { unsetenv("FAKE_NVML_STATE"); }

  void Set(const std::string& state) {
    setenv("FAKE_NVML_STATE", dir_.Write("gpus", state).c_str(), 1);
  }
  std::unique_ptr<Nvml> Open(const std::string& library = FAKE_NVML) {
    auto nvml = Nvml::Open(library);
    EXPECT_TRUE(nvml.ok()) << nvml.status();
    return nvml.ok() ? *std::move(nvml) : nullptr;
  }

  // Returns the UUIDs of the listed devices, in their order.
  static std::vector<std::string> Listed(Nvml& nvml) {
    const auto gpus = nvml.ListGpus();
    EXPECT_TRUE(gpus.ok()) << gpus.status();
    std::vector<std::string> uuids;
    if (!gpus.ok()) return uuids;
    for (const auto& gpu : *gpus) uuids.push_back(gpu.uuid);
    return uuids;
  }

  ::trainyard::testing::TempDir dir_;
};

TEST_F(NvmlTest, ListsGpusOfTheLibrary) {
  const auto nvml = Open();
  const auto gpus = nvml->ListGpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  const std::vector<Device> devices = GpuDevices(*gpus);
  ASSERT_EQ(devices.size(), 5u);
  EXPECT_EQ(devices[0].name, "GPU-aaaa");
  EXPECT_EQ(devices[0].type, "h200");
  EXPECT_EQ(devices[0].memory_bytes, int64_t{150} << 30);
  EXPECT_EQ(devices[1].type, "gtx-1080-ti");
  EXPECT_EQ((*gpus)[0].compute_capability, "9.0");
  EXPECT_EQ((*gpus)[1].compute_capability, "6.1");
  EXPECT_TRUE(devices[0].bf16);
  EXPECT_FALSE(devices[1].bf16) << "it came with compute capability 8.0";
  EXPECT_EQ((*gpus)[1].pci_bus_id, "00000000:bb:00.0");
  EXPECT_EQ(nvml->DriverVersion(), "570.86.10");
  std::vector<int> islands;
  islands.reserve(devices.size());
  for (const Device& device : devices) islands.push_back(device.island);
  EXPECT_THAT(islands, ElementsAre(1, 0, 1, 2, 2));
}

TEST_F(NvmlTest, ReadsWhatTheDriverTellsAndLeavesOutWhatItDoesNot) {
  Set(kTwoGpus);
  const auto nvml = Open();
  const auto full = nvml->Read("GPU-3b00");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_THAT(full->memory_used_bytes, Optional(250));
  EXPECT_THAT(full->memory_free_bytes, Optional(750));
  EXPECT_THAT(full->utilization, Optional(0.42));
  EXPECT_THAT(full->memory_utilization, Optional(0.07));
  EXPECT_THAT(full->temperature_celsius, Optional(61));
  EXPECT_THAT(full->power_watts, Optional(312.5));
  EXPECT_THAT(full->power_limit_watts, Optional(700));
  EXPECT_THAT(full->sm_clock_mhz, Optional(1980));
  EXPECT_THAT(full->throttle_reasons, Optional(0x24u));
  EXPECT_THAT(full->ecc_enabled, Optional(true));
  EXPECT_THAT(full->uncorrected_ecc_errors, Optional(2));
  EXPECT_THAT(full->lifetime_ecc_errors, Optional(5));
  EXPECT_THAT(full->is_remap_pending, Optional(false));
  EXPECT_THAT(full->has_remap_failed, Optional(false));
  EXPECT_THAT(full->processes, Optional(ElementsAre(7, 4711)));
  const auto bare = nvml->Read("GPU-5e00");
  ASSERT_TRUE(bare.ok()) << bare.status();
  EXPECT_THAT(bare->memory_used_bytes, Optional(0));
  EXPECT_EQ(bare->utilization, std::nullopt);
  EXPECT_EQ(bare->temperature_celsius, std::nullopt);
  EXPECT_EQ(bare->power_watts, std::nullopt);
  EXPECT_EQ(bare->ecc_enabled, std::nullopt);
  EXPECT_EQ(bare->uncorrected_ecc_errors, std::nullopt);
  EXPECT_EQ(bare->is_remap_pending, std::nullopt);
  EXPECT_THAT(bare->processes, Optional(IsEmpty()));
}

TEST_F(NvmlTest, AnOldDriverTellsLessAndTheRestWorks) {
  Set(kTwoGpus);
  const auto nvml = Open(FAKE_NVML_OLD);
  const auto gpus = nvml->ListGpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 2u);
  EXPECT_EQ((*gpus)[0].island, 0);
  EXPECT_EQ((*gpus)[0].compute_capability, "");
  EXPECT_FALSE(GpuDevices(*gpus)[0].bf16) << "it is not known";
  const auto reading = nvml->Read("GPU-3b00");
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_THAT(reading->memory_used_bytes, Optional(250));
  EXPECT_EQ(reading->utilization, std::nullopt);
  EXPECT_EQ(reading->processes, std::nullopt);
  EXPECT_THAT(nvml->TakeXids(), IsEmpty());
  EXPECT_EQ(nvml->DriverVersion(), "");
}

constexpr char kDivided[] =
    "gpu GPU-aa00 name=NVIDIA_H200 memory=7000 mig=1 temperature=61 ecc=2 remap_pending=0\n"
    "instance MIG-a1 GPU-aa00 name=NVIDIA_H200_MIG_3g.71gb memory=3000 used=100 gi=1 ci=0 pids=7\n"
    "instance MIG-a2 GPU-aa00 name=NVIDIA_H200_MIG_1c.2g.35gb memory=2000 gi=2 ci=0\n"
    "instance MIG-a3 GPU-aa00 name=NVIDIA_H200_MIG_1c.2g.35gb memory=2000 gi=2 ci=1\n"
    "gpu GPU-bb00 name=NVIDIA_H200 memory=7000 mig=0\n"
    "link GPU-aa00 GPU-bb00\n";

TEST_F(NvmlTest, OffersTheInstancesOfADividedGpuInItsPlace) {
  Set(kDivided);
  const auto nvml = Open();
  const auto gpus = nvml->ListGpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  const std::vector<Device> devices = GpuDevices(*gpus);
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_EQ(devices[0].name, "MIG-a1");
  EXPECT_EQ(devices[0].type, "h200-mig-3g");
  EXPECT_EQ(devices[0].memory_bytes, 3000);
  EXPECT_TRUE(devices[0].bf16);
  // Two compute instances share the memory of a GPU instance.
  EXPECT_EQ(devices[1].name, "MIG-a2");
  EXPECT_EQ(devices[1].type, "h200-mig-1c-2g");
  EXPECT_EQ(devices[1].memory_bytes, 1000);
  EXPECT_EQ(devices[2].memory_bytes, 1000);
  EXPECT_EQ(devices[3].name, "GPU-bb00");
  EXPECT_EQ(devices[3].memory_bytes, 7000);
  for (const Device& device : devices) EXPECT_EQ(device.island, 0) << device.name;
  EXPECT_EQ((*gpus)[0].pci_bus_id, "00000000:aa:00.0");
  EXPECT_EQ((*gpus)[0].compute_capability, "9.0");
}

TEST_F(NvmlTest, AnInstanceHasItsOwnUseAndTheHealthOfItsCard) {
  Set(kDivided);
  const auto nvml = Open();
  const auto reading = nvml->Read("MIG-a1");
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_THAT(reading->memory_used_bytes, Optional(100));
  EXPECT_THAT(reading->processes, Optional(ElementsAre(7)));
  EXPECT_THAT(reading->temperature_celsius, Optional(61));
  EXPECT_THAT(reading->uncorrected_ecc_errors, Optional(2));
  EXPECT_THAT(reading->is_remap_pending, Optional(false));
  const auto other = nvml->Read("MIG-a2");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->processes, Optional(IsEmpty()));
}

TEST_F(NvmlTest, AnErrorOfADividedGpuReachesTheInstancesThatItConcerns) {
  Set(kDivided);
  const auto nvml = Open();
  ASSERT_TRUE(nvml->ListGpus().ok());
  Set(absl::StrCat(kDivided, "xid 1 GPU-aa00 94 2 1\nxid 2 GPU-aa00 79\nxid 3 GPU-bb00 48\n"));
  EXPECT_THAT(nvml->TakeXids(),
              ElementsAre(XidEvent{"MIG-a3", 94}, XidEvent{"MIG-a1", 79}, XidEvent{"MIG-a2", 79},
                          XidEvent{"MIG-a3", 79}, XidEvent{"GPU-bb00", 48}));
  // An instance that was away is watched once, too.
  nvml->Watch("MIG-a1");
  Set(absl::StrCat(kDivided, "xid 4 GPU-aa00 79 1 0\n"));
  EXPECT_THAT(nvml->TakeXids(), ElementsAre(XidEvent{"MIG-a1", 79}));
}

TEST_F(NvmlTest, ADividedGpuWithoutInstancesIsRefusedAndTheOthersStay) {
  Set("gpu GPU-aa00 name=NVIDIA_H200 memory=7000 mig=1\n"
      "gpu GPU-bb00 name=NVIDIA_H200 memory=7000\n");
  const auto nvml = Open();
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(Listed(*nvml), ElementsAre("GPU-bb00"));
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("a GPU is not offered"));
  EXPECT_THAT(log, HasSubstr("divided into instances (MIG), but has none"));
}

TEST_F(NvmlTest, AnInstanceThatDoesNotAnswerTakesNoOtherAlong) {
  Set("gpu GPU-aa00 name=NVIDIA_H200 memory=7000 mig=1\n"
      "instance MIG-a1 GPU-aa00 name=NVIDIA_H200_MIG_3g.71gb memory=3000 gi=1 ci=0 silent\n"
      "instance MIG-a2 GPU-aa00 name=NVIDIA_H200_MIG_3g.71gb memory=3000 gi=2 ci=0\n");
  const auto nvml = Open();
  EXPECT_THAT(Listed(*nvml), ElementsAre("MIG-a2"));
  EXPECT_TRUE(absl::IsUnavailable(nvml->Read("MIG-a1").status()));
  // An instance may be destroyed while the worker runs, and its card may be lost.
  Set("gpu GPU-aa00 name=NVIDIA_H200 memory=7000 mig=1\n");
  EXPECT_TRUE(absl::IsNotFound(nvml->Read("MIG-a2").status()));
  Set("gpu GPU-aa00 name=NVIDIA_H200 memory=7000 mig=1 lost\n"
      "instance MIG-a2 GPU-aa00 name=NVIDIA_H200_MIG_3g.71gb memory=3000 gi=2 ci=0\n");
  EXPECT_TRUE(absl::IsDataLoss(nvml->Read("MIG-a2").status()));
}

TEST_F(NvmlTest, ADividedGpuWhoseDriverListsNoInstancesIsRefused) {
  Set(kDivided);
  const auto nvml = Open(FAKE_NVML_WITHOUT_INSTANCES);
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(Listed(*nvml), ElementsAre("GPU-bb00"));
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("its driver is too old to list them"));
  EXPECT_TRUE(absl::IsUnavailable(nvml->Read("MIG-a1").status()));
}

TEST_F(NvmlTest, ADriverFromBeforeInstancesOffersTheCard) {
  Set(kDivided);
  const auto nvml = Open(FAKE_NVML_OLD);
  EXPECT_THAT(Listed(*nvml), ElementsAre("GPU-aa00", "GPU-bb00"));
}

TEST_F(NvmlTest, AGpuThatDoesNotAnswerTakesNoOtherAlong) {
  Set("gpu GPU-aa00 name=NVIDIA_H200 memory=1000 lost\n"
      "gpu GPU-bb00 name=NVIDIA_H200 memory=1000\n"
      "gpu GPU-cc00 name=NVIDIA_H200 memory=1000 silent\n");
  const auto nvml = Open();
  EXPECT_THAT(Listed(*nvml), ElementsAre("GPU-bb00"));
  EXPECT_TRUE(absl::IsDataLoss(nvml->Read("GPU-aa00").status()));
  EXPECT_TRUE(nvml->Read("GPU-bb00").ok());
  EXPECT_TRUE(absl::IsUnavailable(nvml->Read("GPU-cc00").status()));
  EXPECT_TRUE(absl::IsNotFound(nvml->Read("GPU-dd00").status()));
}

TEST_F(NvmlTest, TellsEachErrorOnceAndOfGpusThatItWatchesOnly) {
  Set(kTwoGpus);
  const auto nvml = Open();
  ASSERT_TRUE(nvml->ListGpus().ok());
  EXPECT_THAT(nvml->TakeXids(), IsEmpty());
  Set(std::string(kTwoGpus) + "xid 1 GPU-5e00 31\nxid 2 GPU-3b00 79\nxid 3 GPU-ffff 79\n");
  EXPECT_THAT(nvml->TakeXids(), ElementsAre(XidEvent{"GPU-5e00", 31}, XidEvent{"GPU-3b00", 79}));
  EXPECT_THAT(nvml->TakeXids(), IsEmpty());
}

TEST(Nvml, IsNotFoundWhereThereIsNoLibraryAndRefusedWhereItIsAnother) {
  EXPECT_EQ(Nvml::Open("libno-such-library.so.1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Nvml::Open("libm.so.6").status().code(), absl::StatusCode::kUnavailable);
}

TEST(SlowedBy, NamesWhatHoldsTheClocksDown) {
  EXPECT_EQ(SlowedBy(0), "");
  EXPECT_EQ(SlowedBy(0x1), "");
  EXPECT_EQ(SlowedBy(0x8), "hardware");
  EXPECT_EQ(SlowedBy(0x8 | 0x40), "heat");
  EXPECT_EQ(SlowedBy(0x4 | 0x20), "heat, power cap");
}

TEST(HardwareXid, TellsErrorsOfTheGpuFromThoseOfPrograms) {
  for (const int64_t xid : {13, 31, 43, 45, 68, 109, 0, 100'000}) {
    EXPECT_EQ(HardwareXid(xid), nullptr) << xid;
  }
  for (const int64_t xid : {48, 62, 79, 94, 95, 119, 120}) {
    ASSERT_NE(HardwareXid(xid), nullptr) << xid;
    EXPECT_TRUE(HardwareXid(xid)->ends_ranks) << xid;
  }
  for (const int64_t xid : {63, 64, 74, 92}) {
    ASSERT_NE(HardwareXid(xid), nullptr) << xid;
    EXPECT_FALSE(HardwareXid(xid)->ends_ranks) << xid;
  }
}

}  // namespace
}  // namespace trainyard::agent
