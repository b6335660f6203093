"""Refusals of deployments, in Azure's codes and words."""

from typing import Any

from emulator.core.errors import ArmError


class DetailedError(ArmError):
    """An error with the errors that led to it."""

    def __init__(
        self, status: int, code: str, message: str, details: list[dict[str, Any]], target: str = ""
    ) -> None:
        super().__init__(status, code, message)
        self.details = details
        self.target = target

    @property
    def body(self) -> dict[str, Any]:
        """The error as JSON travels."""
        inner: dict[str, Any] = {"code": self.code}
        if self.target:
            inner["target"] = self.target
        return {"error": inner | {"message": self.message, "details": self.details}}


def invalid_template(message: str) -> ArmError:
    """Return 400: the template or its parameters are invalid."""
    return ArmError(400, "InvalidTemplate", f"Deployment template validation failed: '{message}'.")


def invalid_resource(name: str, message: str) -> ArmError:
    """One resource of the template makes no sense."""
    return invalid_template(f"The template resource '{name}' is not valid: {message}")


def not_valid(name: str, tracking: str, details: list[dict[str, Any]]) -> ArmError:
    """Return 400: a resource provider would refuse what the template asks for."""
    return DetailedError(
        400,
        "InvalidTemplateDeployment",
        f"The template deployment '{name}' is not valid according to the validation procedure. "
        f"The tracking id is '{tracking}'. See inner errors for details.",
        details,
    )


def not_allowed(reasons: list[str]) -> ArmError:
    """Whoever deploys may not write some of what the template asks for."""
    begins = "The template deployment failed with error: "
    if len(reasons) > 1:
        begins = "Deployment failed with multiple errors: "
    return ArmError(400, "InvalidTemplateDeployment", f"{begins}'{':'.join(reasons)}'.")


def failed(deployment_id: str, details: list[dict[str, Any]]) -> dict[str, Any]:
    """Why a deployment that was accepted failed."""
    return {
        "code": "DeploymentFailed",
        "target": deployment_id,
        "message": "At least one resource deployment operation failed. Please list deployment "
        "operations for details. Please see https://aka.ms/arm-deployment-operations for usage "
        "details.",
        "details": details,
    }


def active(name: str) -> ArmError:
    """Return 409: the deployment is running already."""
    return ArmError(
        409,
        "DeploymentActive",
        f"Unable to edit or replace deployment '{name}': previous deployment is still active. "
        "Please see https://aka.ms/arm-deploy for usage details.",
    )


def not_found(name: str) -> ArmError:
    """There is no such deployment."""
    return ArmError(404, "DeploymentNotFound", f"Deployment '{name}' could not be found.")
