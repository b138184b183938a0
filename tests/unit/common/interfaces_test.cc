// Tests at which address a host can be reached, and the message if there is none.
#include "common/base/interfaces.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/errors.h"

namespace trainyard {
namespace {

const std::vector<InterfaceAddress>& Host() {
  static const std::vector<InterfaceAddress> host = {
      {.interface = "lo", .address = "127.0.0.1", .is_loopback = true},
      {.interface = "docker0", .address = "172.17.0.1", .is_running = false},
      {.interface = "ib0", .address = "10.1.0.2"},
      {.interface = "eth0", .address = "192.168.7.2", .has_default_route = true},
      {.interface = "ib0", .address = "fd00::2"},
  };
  return host;
}

std::string Chosen(absl::string_view wanted) {
  const auto chosen = ChooseInterface(wanted, Host());
  if (!chosen.ok()) return std::string(chosen.status().message());
  return chosen->interface + " " + chosen->address;
}

TEST(Interfaces, ANameMeansItsFirstAddress) {
  EXPECT_EQ(Chosen("ib0"), "ib0 10.1.0.2");
}

TEST(Interfaces, AnAddressMeansItself) {
  EXPECT_EQ(Chosen("192.168.7.2"), "eth0 192.168.7.2");
  EXPECT_EQ(Chosen("fd00:0::2"), "ib0 fd00::2");
}

TEST(Interfaces, EveryAddressOfTheLoopbackNetworkIsHere) {
  EXPECT_EQ(Chosen("127.0.0.9"), "lo 127.0.0.9");
}

TEST(Interfaces, ANetworkMeansTheAddressWithinIt) {
  EXPECT_EQ(Chosen("10.0.0.0/8"), "ib0 10.1.0.2");
  EXPECT_EQ(Chosen("192.168.6.0/23"), "eth0 192.168.7.2");
  EXPECT_EQ(Chosen("fd00::/16"), "ib0 fd00::2");
}

TEST(Interfaces, WithoutAWishTheDefaultRouteDecides) {
  EXPECT_EQ(Chosen(""), "eth0 192.168.7.2");
}

TEST(Interfaces, WithoutADefaultRouteItIsTheFirstThatRuns) {
  std::vector<InterfaceAddress> host = Host();
  host[3].has_default_route = false;
  EXPECT_EQ(ChooseInterface("", host)->interface, "ib0");
}

TEST(Interfaces, OneWithoutACarrierIsBetterThanTheLoopback) {
  EXPECT_EQ(ChooseInterface("", absl::MakeSpan(Host()).first(2))->interface, "docker0");
}

TEST(Interfaces, WithoutAnyOtherItIsTheLoopback) {
  EXPECT_EQ(ChooseInterface("", absl::MakeSpan(Host()).first(1))->interface, "lo");
}

TEST(Interfaces, WhatIsNotHereIsToldWithWhatIs) {
  const absl::string_view here =
      "; this host has lo 127.0.0.1, docker0 172.17.0.1, ib0 10.1.0.2, eth0 192.168.7.2, ib0 "
      "fd00::2";
  EXPECT_EQ(Chosen("eth7"), "no interface 'eth7'" + std::string(here));
  EXPECT_EQ(Chosen("10.1.0.3"), "no address 10.1.0.3" + std::string(here));
  EXPECT_EQ(Chosen("10.2.0.0/16"), "no address in 10.2.0.0/16" + std::string(here));
  const auto status = ChooseInterface("eth7", Host()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(status), "INTERFACE_NOT_FOUND");
}

TEST(Interfaces, ANetworkThatIsNoneIsRefused) {
  for (const char* wanted : {"10.1.0.0/33", "10.1/16", "10.1.0.0/", "10.1.0.0/-1", "/16"}) {
    EXPECT_EQ(ChooseInterface(wanted, Host()).status().code(), absl::StatusCode::kInvalidArgument)
        << wanted;
  }
}

TEST(Interfaces, AHostWithoutAnySaysSo) {
  EXPECT_EQ(ChooseInterface("eth0", {}).status().message(),
            "no interface 'eth0'; this host has no interface that is up");
  EXPECT_FALSE(ChooseInterface("", {}).ok());
}

TEST(Interfaces, ThisHostListsItsOwn) {
  const auto present = ListInterfaces();
  ASSERT_TRUE(present.ok()) << present.status();
  for (const InterfaceAddress& each : *present) {
    const auto found = FindInterface(each.address);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->interface, each.interface);
  }
}

}  // namespace
}  // namespace trainyard
