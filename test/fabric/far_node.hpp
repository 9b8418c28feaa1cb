// The two kinds of far node; see FarNode.
#pragma once

#include "fabric/world.hpp"

namespace cmi::test {

std::unique_ptr<FarNode> fake_far_node(fabric::FakeNet& net, std::unique_ptr<Fabric> node);
// `port`: of its endpoint's address, which is an IP address then; 0: any.
std::unique_ptr<FarNode> process_far_node(const std::string& provider, uint16_t port = 0);

// Runs a case of this program that is marked doctest::skip() in a process of its own, with one
// argument in the environment and fd 3 as given. The process dies with this thread.
pid_t spawn_case(const char* name, const std::string& argument, int fd3);
inline constexpr const char* kCaseArgument = "CMI_TEST_CASE_ARGUMENT";

}  // namespace cmi::test
