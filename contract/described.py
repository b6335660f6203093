"""Request models whose members are described by the text under them.

pydantic's ``use_attribute_docstrings`` reads the source of every model at import, which takes 0.6 s
of CPU at each start of the service. Here the source is read when a schema is requested.
"""

import ast
import inspect
import sys
from functools import cache

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Described(BaseModel):
    """A model whose member descriptions, in schemas and help, are the text under each member."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """Return the schema with a description for each member."""
        schema = handler(core_schema)
        members = handler.resolve_ref_schema(schema).get("properties", {})
        texts = descriptions(cls)
        for name, field in cls.model_fields.items():
            member = members.get(field.alias or name)
            if member is not None and name in texts:
                member.setdefault("description", texts[name])
        return schema


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each member, inherited ones included."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Described):
            texts |= _class_texts(base.__module__).get(base.__qualname__, {})
    fields = {name: field.description for name, field in model.model_fields.items()}
    return texts | {name: text for name, text in fields.items() if text}


@cache
def _class_texts(name: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {node.name: _member_texts(node) for node in classes}


def _member_texts(node: ast.ClassDef) -> dict[str, str]:
    """Return the text under each member of a class."""
    texts = {}
    for member, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            literal = text.value if isinstance(text, ast.Expr) else None
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                texts[member.target.id] = inspect.cleandoc(literal.value)
    return texts
