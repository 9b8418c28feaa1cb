// Whether this process could open so many descriptors now. Any thread; opens and closes them.
#pragma once

namespace cmi {

bool descriptors_left(int count);

}  // namespace cmi
