/*
 * cmi/cmi.hpp: CMI for C++20. Objects that give back what they hold, failures as exceptions or
 * error codes, typed views, atomic objects, locks, and code that outlives the loss of the memory it
 * works on. Header-only, over <cmi.h> and <cmi/ofi/cmi_impl.h>; whatever they say of threads,
 * memory model and errors holds here. cmi_cpp(7) is the page of the manual.
 *
 * - A function that can fail exists twice: one throws cmi::error, one takes a std::error_code& last
 *   and throws nothing. The code's value is a cmi_error, its category cmi::category().
 * - Objects are moved and not copied. An object that was moved from, or made without arguments, is
 *   empty: it holds nothing, and only assignment and destruction are allowed.
 * - A destructor ignores failures. Objects of a context end before the context, views before their
 *   segment: declare them in the order in which they are made.
 */
#ifndef CMI_CMI_HPP
#define CMI_CMI_HPP

#include <cmi/cpp/arena.hpp>
#include <cmi/cpp/atomic.hpp>
#include <cmi/cpp/context.hpp>
#include <cmi/cpp/error.hpp>
#include <cmi/cpp/guard.hpp>
#include <cmi/cpp/segment.hpp>
#include <cmi/cpp/sync.hpp>

#endif
