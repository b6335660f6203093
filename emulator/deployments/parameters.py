"""What is passed to a template, held against what the template declares."""

from typing import Any

from emulator.deployments.expressions import NotYet, TemplateError, evaluate
from emulator.deployments.refusals import invalid_template
from emulator.deployments.scopes import TemplateScope

Json = Any
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "securestring": (str,),
    "int": (int,),
    "bool": (bool,),
    "array": (list,),
    "object": (dict,),
    "secureobject": (dict,),
}


def resolve(declared: Json, arguments: Json, scope: TemplateScope) -> dict[str, Json]:
    """Return the value of every parameter, or raise ArmError."""
    if not isinstance(declared, dict) or not isinstance(arguments, dict):
        raise invalid_template("The template parameters must be an object.")
    _refuse_unknown(declared, arguments)
    passed = {name.lower(): value for name, value in arguments.items()}
    values: dict[str, Json] = {}
    for name, rules in declared.items():
        if not isinstance(rules, dict) or str(rules.get("type")).lower() not in TYPES:
            raise invalid_template(f"The template parameter '{name}' has no valid type.")
        _check_rules(name, rules)
        inner = TemplateScope(scope.place, values, scope.variables)
        values[name] = _value(name, rules, passed.get(name.lower()), inner)
        _check(name, rules, values[name])
    return values


def is_secret(rules: Json) -> bool:
    """Whether a parameter or output is never shown."""
    return str(rules.get("type")).lower().startswith("secure")


def parameters_as_json(declared: Json, values: dict[str, Json]) -> dict[str, Json]:
    """Parameters as a deployment answers them: secrets without their values."""
    rows: dict[str, Json] = {}
    for name, value in values.items():
        kind = str(declared[name]["type"])
        rows[name] = {"type": kind[:1].upper() + kind[1:]}
        if not is_secret(declared[name]):
            rows[name]["value"] = value
    return rows


def _refuse_unknown(declared: dict[str, Json], arguments: dict[str, Json]) -> None:
    declared_names = {name.lower() for name in declared}
    if unknown := [name for name in arguments if name.lower() not in declared_names]:
        raise invalid_template(
            f"The template parameters '{', '.join(unknown)}' in the parameters file are not "
            "valid; they are not present in the original template and can therefore not be "
            "provided at deployment time. The only supported parameters for this template are "
            f"'{', '.join(declared)}'. Please see https://aka.ms/arm-pass-parameter-values for "
            "usage details."
        )


def _check_rules(name: str, rules: Json) -> None:
    bounds = (rules.get(bound, 0) for bound in ("minValue", "maxValue", "minLength", "maxLength"))
    if not all(type(bound) is int for bound in bounds):
        raise invalid_template(f"A bound of the template parameter '{name}' is no integer.")
    if not isinstance(rules.get("allowedValues", []), list):
        raise invalid_template(f"The allowedValues of the parameter '{name}' must be an array.")


def _value(name: str, rules: Json, passed: Json, scope: TemplateScope) -> Json:
    if isinstance(passed, dict) and "value" in passed:
        return passed["value"]
    if "defaultValue" in rules:
        try:
            return evaluate(rules["defaultValue"], scope)
        except (TemplateError, NotYet) as error:
            raise invalid_template(
                f"The template parameter '{name}' is not valid: {error}"
            ) from None
    raise invalid_template(
        f"The value for the template parameter '{name}' is not provided. Please see "
        "https://aka.ms/arm-create-parameter-file for usage details."
    )


def _check(name: str, rules: Json, value: Json) -> None:
    kind = str(rules["type"]).lower()
    right = isinstance(value, TYPES[kind]) and (kind == "bool" or not isinstance(value, bool))
    if not right:
        raise invalid_template(
            f"Template parameter JToken type is not valid. Expected '{rules['type']}'. Actual "
            f"'{type(value).__name__}'. The parameter is '{name}'. Please see "
            "https://aka.ms/arm-create-parameter-file for usage details."
        )
    allowed = rules.get("allowedValues")
    if allowed is not None and value not in allowed:
        raise invalid_template(
            f"The provided value '{value}' for the template parameter '{name}' is not valid. The "
            f"value '{value}' is not part of the allowed value(s): "
            f"'{','.join(str(choice) for choice in allowed)}'."
        )
    if isinstance(value, bool | dict):
        return
    size, measure = (value, "Value") if isinstance(value, int) else (len(value), "Length")
    for bound, wrong in (
        (f"min{measure}", size < rules.get(f"min{measure}", size)),
        (f"max{measure}", size > rules.get(f"max{measure}", size)),
    ):
        if wrong:
            raise invalid_template(
                f"The provided value for the template parameter '{name}' is not valid. "
                f"{measure} of the value should satisfy {bound} '{rules[bound]}'; it is '{size}'."
            )
