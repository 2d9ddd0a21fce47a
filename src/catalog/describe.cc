#include "catalog/describe.h"
