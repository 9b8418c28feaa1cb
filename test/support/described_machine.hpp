// A machine of two NUMA nodes, described for hwloc: a network device near to each, processors 0 and
// 1 in the first, 2 and 3 in the second. As long as it lives, a topology that is loaded is this
// one, and what is bound is bound on the real machine.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace cmi::test {

class DescribedMachine {
 public:
  DescribedMachine(const std::string& near_first, const std::string& near_second) {
    char name[] = "/dev/shm/cmi-machine-XXXXXX";
    const int fd = ::mkstemp(name);
    if (fd >= 0) ::close(fd);
    path_ = name;
    std::ofstream(path_) << R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0xf" complete_cpuset="0xf" allowed_cpuset="0xf"
  nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">)"
                         << package(0, near_first) << package(1, near_second)
                         << "</object></topology>\n";
    ::setenv("HWLOC_XMLFILE", path_.c_str(), 1);
    ::setenv("HWLOC_THISSYSTEM", "1", 1);
  }
  ~DescribedMachine() {
    ::unsetenv("HWLOC_XMLFILE");
    ::unsetenv("HWLOC_THISSYSTEM");
    ::unlink(path_.c_str());
  }
  DescribedMachine(const DescribedMachine&) = delete;
  DescribedMachine& operator=(const DescribedMachine&) = delete;

  const std::string& path() const { return path_; }

 private:
  // A NUMA node, its two processors, a network device at its own host bridge.
  static std::string package(unsigned n, const std::string& device) {
    const auto number = [](unsigned i) { return std::to_string(i); };
    const auto sets = [](const std::string& cpus, const std::string& nodes) {
      return " cpuset=\"" + cpus + "\" complete_cpuset=\"" + cpus + "\" nodeset=\"" + nodes +
             "\" complete_nodeset=\"" + nodes + "\"";
    };
    const auto object = [&](const std::string& type, unsigned index, const std::string& rest) {
      return "<object type=\"" + type + "\" gp_index=\"" + number(10 * (n + 1) + index) + "\"" +
             rest;
    };
    const std::string node = n == 0 ? "0x1" : "0x2", bus = n == 0 ? "00" : "80";
    const std::string both = sets(n == 0 ? "0x3" : "0xc", node);
    std::string text = object("Package", 0, " os_index=\"" + number(n) + "\"" + both + ">") +
                       object("NUMANode", 1, " os_index=\"" + number(n) + "\"" + both) +
                       " local_memory=\"1073741824\"><page_type size=\"4096\" count=\"262144\"/>"
                       "</object>";
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned cpu = 2 * n + i;
      const std::string set = "0x" + number(1u << cpu);  // 1, 2, 4, 8
      text += object("PU", 2 + i, " os_index=\"" + number(cpu) + "\"" + sets(set, node) + "/>");
    }
    text +=
        object("Bridge", 4,
               " bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[" + bus + "-" + bus + "]\">") +
        object("PCIDev", 5,
               " pci_busid=\"0000:" + bus +
                   ":03.0\" pci_type=\"0200 [8086:1572] [8086:0000] 01\" "
                   "pci_link_speed=\"0.0\">") +
        object("OSDev", 6, " name=\"" + device + "\" osdev_type=\"2\"/>");
    return text + "</object></object></object>";
  }

  std::string path_;
};

}  // namespace cmi::test
